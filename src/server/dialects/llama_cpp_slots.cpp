// GET /slots, POST /slots/ID?action=save|restore|erase
#include <boost/json.hpp>

#include "core/error.hpp"
#include "server/dialects/llama_cpp.hpp"
#include "server/request_fields.hpp"

namespace quipu::server::llama_cpp {

namespace json = boost::json;

void slots(const std::shared_ptr<Call>& call) {
  json::array list;
  for (const Models::Listed& listed : call->context->models->list()) {
    if (!listed.served) continue;
    const EngineService& service = *listed.served->service;
    for (const SlotView& slot : service.slots()) {
      json::object object;
      object["id"] = slot.id;
      object["id_task"] = slot.busy ? static_cast<std::int64_t>(slot.job) : -1;
      object["model"] = listed.entry.id;
      object["n_ctx"] = service.memory().context;
      object["speculative"] = false;
      object["is_processing"] = slot.busy;
      object["n_prompt_tokens"] = slot.prompt_tokens;
      object["next_token"] = json::array{
          json::object{{"has_next_token", slot.busy},
                       {"n_decoded", slot.generated_tokens},
                       {"n_remain", slot.max_tokens < 0 ? -1 : slot.max_tokens - slot.generated_tokens}}};
      list.push_back(std::move(object));
    }
  }
  call->respond_json(json::serialize(list));
}

namespace {

std::size_t read_slot_number(const std::string& text) {
  const bool digits =
      !text.empty() && text.size() < 6 && text.find_first_not_of("0123456789") == std::string::npos;
  if (!digits) bad_field("id_slot", "\"{}\" is no slot, expected a number", printable(text, 40));
  return std::stoul(text);
}

}  // namespace

void slot_action(const std::shared_ptr<Call>& call) {
  with_body(call, [call](const Fields& fields, const std::shared_ptr<Served>& served) {
    if (call->context->slot_save_path.empty())
      throw RequestError(ErrorKind::unsupported,
                         "this server does not keep slots: start it with --slot-save-path FOLDER");
    const std::size_t slot = read_slot_number(call->tail);
    const std::string action = call->request.parameter("action").value_or("");
    if (action != "save" && action != "restore" && action != "erase")
      bad_field("action", "action is \"{}\", expected save, restore or erase", printable(action, 40));
    std::string filename;
    std::filesystem::path file;
    if (action != "erase") {
      const auto name = fields.text("filename");
      if (!name) bad_field("filename", "\"filename\" is missing, expected the name of the saved slot");
      filename = *name;
      file = slot_file(call->context->slot_save_path, filename);
    }
    // The model stays loaded until the answer is made.
    const auto done = [call, served, slot, action, filename](const SlotReport& report,
                                                             const std::exception_ptr& failure) {
      if (failure) {
        try {
          std::rethrow_exception(failure);
        } catch (...) {
          call->fail_current();
        }
        return;
      }
      json::object object;
      object["id_slot"] = slot;
      if (action == "erase") {
        object["n_erased"] = report.tokens;
      } else {
        const bool save = action == "save";
        object["filename"] = filename;
        object[save ? "n_saved" : "n_restored"] = report.tokens;
        object[save ? "n_written" : "n_read"] = report.bytes;
        object["timings"] = json::object{{save ? "save_ms" : "restore_ms", report.milliseconds}};
      }
      call->respond_json(json::serialize(object));
    };
    EngineService& service = *served->service;
    if (action == "save") service.save_slot(slot, file, done);
    if (action == "restore") {
      // What requests with these adapters can go on from.
      const json::array* lora = fields.array("lora");
      service.restore_slot(slot, file,
                           lora != nullptr ? served->adapters.read(*lora, "lora") : served->adapters.scales(),
                           done);
    }
    if (action == "erase") service.erase_slot(slot, done);
  });
}

}  // namespace quipu::server::llama_cpp
