//! What caused an error.
//!
//! Libraries put their own words before a cause, and some put a dump of it behind; the cause itself is the sentence to show.

use std::error::Error;

/// An error and everything that caused it, the outermost first.
pub fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// The innermost cause of an error, which is the error itself if nothing caused it.
pub fn root_cause<'e>(error: &'e (dyn Error + 'static)) -> &'e (dyn Error + 'static) {
    causes(error).last().unwrap_or(error)
}

#[cfg(test)]
mod tests {
    use thiserror::Error;

    use super::*;

    #[derive(Debug, Error)]
    #[error("inner")]
    struct Inner;

    #[derive(Debug, Error)]
    #[error("outer: {0} ({0:?})")]
    struct Outer(#[source] Inner);

    #[test]
    fn finds_the_innermost_cause() {
        assert_eq!(root_cause(&Outer(Inner)).to_string(), "inner");
        assert_eq!(root_cause(&Inner).to_string(), "inner");
        assert_eq!(causes(&Outer(Inner)).count(), 2);
    }
}
