//! The replicated state and the one function that changes it, `State::apply`.
