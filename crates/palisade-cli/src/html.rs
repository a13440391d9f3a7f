//! A document that is written from markup of this program and text from anywhere.

/// A document that is written: markup from this program, text from anywhere.
#[derive(Debug, Default)]
pub struct Html(String);

impl Html {
    /// Markup. Only literals of this program can be given.
    pub fn markup(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Text, escaped for elements and for quoted attributes.
    pub fn text(&mut self, text: &str) -> &mut Self {
        for character in text.chars() {
            match character {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                // Names and messages are one line each, and must not turn the direction of what follows.
                '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                    self.0.push('\u{fffd}');
                }
                character if character.is_control() => self.0.push(' '),
                character => self.0.push(character),
            }
        }
        self
    }

    /// A number.
    pub fn number(&mut self, number: usize) -> &mut Self {
        self.0.push_str(&number.to_string());
        self
    }

    /// An element that contains text.
    pub fn element(&mut self, open: &'static str, text: &str, close: &'static str) -> &mut Self {
        self.markup(open).text(text).markup(close)
    }

    /// What another document wrote.
    pub fn part(&mut self, part: &Self) -> &mut Self {
        self.0.push_str(&part.0);
        self
    }

    /// Whether nothing was written.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The document.
    #[must_use]
    pub fn finish(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Html;

    #[test]
    fn text_cannot_become_markup() {
        let mut html = Html::default();
        html.element("<td title=\"", "\"><script>alert(1)</script>'&\u{202e}\n", "\">");
        assert_eq!(
            html.finish(),
            "<td title=\"&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;&#39;&amp;\u{fffd} \">"
        );
    }
}
