// Follows a JSON text byte by byte (RFC 8259) without keeping it.
#pragma once

#include <cstdint>
#include <string>

namespace quipu::text {

/// White space of JSON.
inline bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

class JsonScanner {
 public:
  static constexpr std::size_t kMaxDepth = 100;
  enum class Status { more, done, failed };

  /// `done`: this byte completes the value. Only objects, lists and texts complete so; a number or word at
  /// the top does not.
  Status push(char byte);

  /// Open objects and lists.
  std::size_t depth() const { return open_.size(); }

  /// Inside of a key or text.
  bool in_text() const {
    return state_ == State::in_string || state_ == State::escape || state_ == State::unicode;
  }

  // What the last byte did, at the depth it stood at.
  bool key_ended() const { return event_ == Event::key_ended; }      ///< the closing quote of a key
  bool value_began() const { return event_ == Event::value_began; }  ///< the first byte of a value
  bool value_ended() const {
    return event_ == Event::value_ended;
  }  ///< the last byte of an object, list or text

 private:
  enum class State : std::uint8_t {
    value,
    first_value,
    first_key,
    key,
    in_string,
    escape,
    unicode,
    colon,
    after,
    number,
    word
  };
  enum class Number : std::uint8_t { minus, zero, digits, point, fraction, exponent, sign, power };
  enum class Event : std::uint8_t { none, key_ended, value_began, value_ended };
  Status begin_value(char byte);
  Status end_value();
  Status next_in_number(char byte);
  Status after_value(char byte);

  State state_ = State::value;
  Number number_ = Number::minus;
  Event event_ = Event::none;
  bool is_key_ = false;
  int digits_ = 0;
  const char* word_ = nullptr;
  std::string open_;  // of '{' and '['
};

}  // namespace quipu::text
