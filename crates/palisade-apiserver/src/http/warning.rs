//! `Warning` headers, with upstream's escaping, deduplication and limits.
//!
//! Implements: KEP-1693, "Warning mechanism for use of deprecated APIs".
//! <https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/1693-warnings>

use http::{HeaderMap, HeaderValue, header};

/// All texts together may have this many characters before each is cut.
const TOTAL: usize = 4096;
/// What is left of each when they are cut.
const ITEM: usize = 256;

/// Warnings for one answer, in order, each text once.
#[derive(Debug, Default)]
pub struct Warnings(Vec<String>);

impl Warnings {
    /// Adds a text.
    pub fn add(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !text.is_empty() && !self.0.contains(&text) {
            self.0.push(text);
        }
    }

    /// Adds texts.
    pub fn extend(&mut self, texts: impl IntoIterator<Item = String>) {
        texts.into_iter().for_each(|text| self.add(text));
    }

    /// Writes the headers.
    pub fn write(&self, headers: &mut HeaderMap) {
        let sendable = || self.0.iter().filter(|text| !text.chars().any(char::is_control));
        let total: usize = sendable().map(|text| text.chars().count()).sum();
        let mut written = 0;
        for text in sendable() {
            let length = text.chars().count();
            let (text, length) = if total > TOTAL && length > ITEM {
                (text.chars().take(ITEM).collect::<String>(), ITEM)
            } else {
                (text.clone(), length)
            };
            if written >= TOTAL {
                return;
            }
            written += length;
            let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
                headers.append(header::WARNING, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(texts: &[String]) -> Vec<String> {
        let mut warnings = Warnings::default();
        warnings.extend(texts.iter().cloned());
        let mut headers = HeaderMap::new();
        warnings.write(&mut headers);
        let all = headers.get_all(header::WARNING).iter();
        all.map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned()).collect()
    }

    #[test]
    fn quotes_and_sends_each_text_once() {
        let texts = ["a \"b\" \\c".to_owned(), "é".to_owned(), "é".to_owned(), "two\nlines".to_owned()];
        assert_eq!(headers(&texts), [r#"299 - "a \"b\" \\c""#, r#"299 - "é""#]);
    }

    #[test]
    fn cuts_all_texts_when_together_they_are_too_long() {
        let texts: Vec<String> = (0..40).map(|n| format!("{n}{}", "x".repeat(300))).collect();
        let sent = headers(&texts);
        assert_eq!(sent.len(), 16);
        assert!(sent.iter().all(|h| h.len() == 256 + r#"299 - """#.len()));
    }
}
