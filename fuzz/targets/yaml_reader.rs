#![no_main]
//! Any bytes: the reader returns documents or errors, every span lies in the text, and reading the JSON of a document
//! again gives the same JSON.

use libfuzzer_sys::fuzz_target;
use palisade_yaml::{Limits, LineIndex, decode, looks_like_template, parse};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = decode(bytes) else { return };
    let _ = looks_like_template(&text);
    let lines = LineIndex::new(&text);
    let parsed = parse(&text, &Limits::default());
    for error in &parsed.errors {
        assert!(!error.to_string().is_empty());
    }
    for comment in parsed.comments() {
        assert!(text.get(comment.span.start..comment.span.end).is_some());
        let _ = lines.position(comment.span.start);
    }
    for document in &parsed.documents {
        if let Ok(json) = document.root().to_json() {
            let written = json.to_string();
            let again = parse(&written, &Limits::default());
            if again.errors.is_empty() {
                assert_eq!(again.documents[0].root().to_json().ok(), Some(json));
            }
        }
    }
});
