#include "text/output/json_scanner.hpp"

#include <string_view>

namespace quipu::text {

namespace {
bool is_hex(char c) { return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); }
}  // namespace

JsonScanner::Status JsonScanner::end_value() {
  event_ = Event::value_ended;
  state_ = State::after;
  return open_.empty() ? Status::done : Status::more;
}

JsonScanner::Status JsonScanner::begin_value(char byte) {
  event_ = Event::value_began;
  if (byte == '{' || byte == '[') {
    if (open_.size() >= kMaxDepth) return Status::failed;
    open_ += byte;
    state_ = byte == '{' ? State::first_key : State::first_value;
  } else if (byte == '"') {
    state_ = State::in_string;
    is_key_ = false;
  } else if (byte == '-' || is_digit(byte)) {
    state_ = State::number;
    number_ = byte == '-' ? Number::minus : byte == '0' ? Number::zero : Number::digits;
  } else if (byte == 't' || byte == 'f' || byte == 'n') {
    state_ = State::word;
    word_ = byte == 't' ? "rue" : byte == 'f' ? "alse" : "ull";
  } else {
    return Status::failed;
  }
  return Status::more;
}

JsonScanner::Status JsonScanner::next_in_number(char byte) {
  switch (number_) {
    case Number::minus:
      if (!is_digit(byte)) return Status::failed;
      number_ = byte == '0' ? Number::zero : Number::digits;
      return Status::more;
    case Number::digits:
      if (is_digit(byte)) return Status::more;
      [[fallthrough]];
    case Number::zero:
      if (byte == '.') return number_ = Number::point, Status::more;
      break;
    case Number::point:
      if (!is_digit(byte)) return Status::failed;
      number_ = Number::fraction;
      return Status::more;
    case Number::fraction:
      if (is_digit(byte)) return Status::more;
      break;
    case Number::exponent:
      if (byte == '+' || byte == '-') return number_ = Number::sign, Status::more;
      [[fallthrough]];
    case Number::sign:
      if (!is_digit(byte)) return Status::failed;
      number_ = Number::power;
      return Status::more;
    case Number::power:
      if (is_digit(byte)) return Status::more;
      return state_ = State::after, after_value(byte);
  }
  if (byte == 'e' || byte == 'E') return number_ = Number::exponent, Status::more;
  state_ = State::after;
  return after_value(byte);
}

JsonScanner::Status JsonScanner::after_value(char byte) {
  if (is_space(byte)) return Status::more;
  if (open_.empty()) return Status::failed;
  if (byte == ',') {
    state_ = open_.back() == '{' ? State::key : State::value;
    return Status::more;
  }
  if (byte != (open_.back() == '{' ? '}' : ']')) return Status::failed;
  open_.pop_back();
  return end_value();
}

JsonScanner::Status JsonScanner::push(char byte) {
  event_ = Event::none;
  switch (state_) {
    case State::first_key:
      if (byte == '}') return open_.pop_back(), end_value();
      [[fallthrough]];
    case State::key:
      if (is_space(byte)) return Status::more;
      if (byte != '"') return Status::failed;
      state_ = State::in_string;
      is_key_ = true;
      return Status::more;
    case State::first_value:
      if (byte == ']') return open_.pop_back(), end_value();
      [[fallthrough]];
    case State::value:
      return is_space(byte) ? Status::more : begin_value(byte);
    case State::in_string:
      if (byte == '\\') return state_ = State::escape, Status::more;
      if (static_cast<unsigned char>(byte) < 0x20) return Status::failed;
      if (byte != '"') return Status::more;
      if (!is_key_) return end_value();
      event_ = Event::key_ended;
      state_ = State::colon;
      return Status::more;
    case State::escape:
      digits_ = 0;
      state_ = byte == 'u' ? State::unicode : State::in_string;
      return std::string_view("\"\\/bfnrtu").find(byte) == std::string_view::npos ? Status::failed
                                                                                  : Status::more;
    case State::unicode:
      if (!is_hex(byte)) return Status::failed;
      if (++digits_ == 4) state_ = State::in_string;
      return Status::more;
    case State::colon:
      if (is_space(byte)) return Status::more;
      state_ = State::value;
      return byte == ':' ? Status::more : Status::failed;
    case State::number:
      return next_in_number(byte);
    case State::word:
      if (byte != *word_) return Status::failed;
      if (*++word_ == '\0') state_ = State::after;
      return Status::more;
    case State::after:
      return after_value(byte);
  }
  return Status::failed;
}

}  // namespace quipu::text
