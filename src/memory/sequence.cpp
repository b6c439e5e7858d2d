// A sequence's page table: growing, forking, copy on write.
#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "memory/kv_cache.hpp"

namespace quipu::memory {

namespace {
std::size_t pages_for(std::size_t positions) { return (positions + kPage - 1) / kPage; }
}  // namespace

Sequence::Sequence(std::shared_ptr<PagePool> pool, std::uint64_t content_key)
    : pool_(std::move(pool)), content_key_(content_key) {}

Sequence::~Sequence() { truncate(0); }

Sequence::Sequence(Sequence&& other) noexcept
    : pool_(other.pool_),
      content_key_(other.content_key_),
      tokens_(std::exchange(other.tokens_, {})),
      pages_(std::exchange(other.pages_, {})),
      from_file_(std::exchange(other.from_file_, false)) {}

Sequence& Sequence::operator=(Sequence&& other) noexcept {
  if (this != &other) {
    truncate(0);
    pool_ = other.pool_;
    content_key_ = other.content_key_;
    tokens_ = std::exchange(other.tokens_, {});
    pages_ = std::exchange(other.pages_, {});
    from_file_ = std::exchange(other.from_file_, false);
  }
  return *this;
}

bool Sequence::reserve(std::int64_t count) {
  if (count <= 0) return true;
  const std::size_t first = tokens_.size() / kPage;  // the first page that will be written
  const std::size_t needed = pages_for(tokens_.size() + static_cast<std::size_t>(count));
  const std::size_t held = std::min(pages_.size(), needed);
  std::size_t shared = 0;
  for (std::size_t i = first; i < held; ++i) shared += pool_->references(pages_[i]) > 1 ? 1 : 0;
  const std::size_t added = needed > pages_.size() ? needed - pages_.size() : 0;
  if (shared + added > pool_->free_pages()) return false;

  for (std::size_t i = first; i < held; ++i) {
    if (pool_->references(pages_[i]) == 1) continue;
    const std::uint32_t own = *pool_->take();
    pool_->copy_page(pages_[i], own);
    pool_->release(std::exchange(pages_[i], own));
  }
  for (std::size_t i = 0; i < added; ++i) pages_.push_back(*pool_->take());
  return true;
}

void Sequence::append(std::span<const std::int32_t> tokens) {
  if (pages_for(tokens_.size() + tokens.size()) > pages_.size()) {
    fail(ErrorCode::internal,
         "{} tokens appended to a sequence of {} that has {} pages: reserve was not called", tokens.size(),
         tokens_.size(), pages_.size());
  }
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

void Sequence::append_shared_page(std::uint32_t page, std::span<const std::int32_t> tokens) {
  if (tokens_.size() % kPage != 0 || tokens.size() != kPage) {
    fail(ErrorCode::internal, "a shared page holds {} tokens and joins a sequence of {}", tokens.size(),
         tokens_.size());
  }
  truncate(length());  // gives back pages reserved beyond the end
  pool_->add_reference(page);
  pages_.push_back(page);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

void Sequence::append_copied_page(std::uint32_t page, std::span<const std::int32_t> tokens) {
  truncate(length());
  const std::optional<std::uint32_t> own = pool_->take();
  if (tokens_.size() % kPage != 0 || tokens.size() >= kPage || !own) {
    fail(ErrorCode::internal, "{} tokens of a page are copied to a sequence of {}, {} pages are free",
         tokens.size(), tokens_.size(), pool_->free_pages());
  }
  pool_->copy_page(page, *own);
  pages_.push_back(*own);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

void Sequence::truncate(std::int64_t length) {
  const std::size_t kept =
      std::min(tokens_.size(), static_cast<std::size_t>(std::max<std::int64_t>(length, 0)));
  tokens_.resize(kept);
  if (kept == 0) from_file_ = false;
  while (pages_.size() > pages_for(kept)) {
    pool_->release(pages_.back());
    pages_.pop_back();
  }
}

Sequence Sequence::fork() const {
  Sequence copy(pool_, content_key_);
  copy.tokens_ = tokens_;
  copy.from_file_ = from_file_;
  copy.pages_.assign(pages_.begin(), pages_.begin() + static_cast<std::ptrdiff_t>(pages_for(tokens_.size())));
  for (const std::uint32_t page : copy.pages_) pool_->add_reference(page);
  return copy;
}

std::size_t Sequence::bytes() const { return pages_.size() * pool_->page_bytes(); }

}  // namespace quipu::memory
