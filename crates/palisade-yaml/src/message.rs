//! What a syntax error says: the event parser's words, turned into ours.

use crate::ErrorKind;

/// The kind and message for what the event parser reports.
pub(crate) fn syntax(info: &str) -> (ErrorKind, String) {
    let message = match info {
        "while parsing node, found unknown anchor" => return (ErrorKind::UnknownAnchor, info.into()),
        "recursion limit exceeded" => {
            return (ErrorKind::TooDeep, "too many brackets inside each other".into());
        }
        "mapping values are not allowed in this context" => {
            "a value cannot begin here: check the indentation, or quote a text that contains `: `"
        }
        "simple key expected" | "simple key expect ':'" => "expected `:` after this key",
        "while parsing a block mapping, did not find expected key" => {
            "expected a key here: check the indentation of this line"
        }
        "while parsing a block collection, did not find expected '-' indicator" => {
            "expected `-` here: check the indentation of this line"
        }
        "block sequence entries are not allowed in this context" => "a list cannot begin here",
        "while parsing a flow mapping, did not find expected ',' or '}'" => "expected `,` or `}` here",
        "while parsing a flow sequence, expected ',' or ']'" => "expected `,` or `]` here",
        "while scanning a quoted scalar, found unexpected end of stream"
        | "while scanning a quoted scalar, found unexpected document indicator" => {
            "this quote is never closed"
        }
        "invalid indentation in quoted scalar" => "a line of this quoted text is not indented enough",
        "while parsing a node, did not find expected node content" => "expected a value here",
        "tabs disallowed within this context (block indentation)"
        | "tabs disallowed in this context"
        | "tab cannot be used as indentation"
        | "while scanning a plain scalar, found a tab" => "a tab cannot be used for indentation",
        "did not find expected <document start>" => {
            "expected the end of the document here: check the indentation, or begin a new document with `---`"
        }
        "illegal placement of ':' indicator" => {
            "a key and its `:` must be on one line: is a bracket not closed?"
        }
        "unexpected character: `%'" | "unexpected character: `@'" | "unexpected character: ``'" => {
            "a plain text cannot begin with this character: put it in quotes"
        }
        "while parsing a quoted scalar, found invalid Unicode character escape code" => {
            "this text has an escape that is no Unicode character"
        }
        "while parsing a quoted scalar, found unknown escape character" => "this text has an unknown escape",
        "misplaced bracket" => "this bracket closes nothing",
        "invalid indentation" => "this line is not indented enough",
        "found unprintable character" => "a NUL character cannot be part of a text",
        other => other,
    };
    let message = message.trim_end_matches('.');
    let mut characters = message.chars();
    // Lower case, unless the first word is an acronym such as YAML.
    let message = match (characters.next(), characters.next()) {
        (Some(first), Some(second)) if first.is_uppercase() && second.is_lowercase() => {
            first.to_lowercase().chain(message.chars().skip(1)).collect()
        }
        _ => message.to_owned(),
    };
    (ErrorKind::Syntax, message)
}

/// Whether the event parser notices this mistake only at the next line.
pub(crate) fn is_about_the_line_before(info: &str) -> bool {
    matches!(info, "simple key expected" | "simple key expect ':'")
}

/// What an alias without anchor says; `alias` is written `*name`.
pub(crate) fn unknown_anchor(alias: &str) -> String {
    format!("`{alias}` has no anchor `&{}` before it in this document", alias.trim_start_matches('*'))
}
