//! Lines of a text, found from byte offsets.

/// The end of the line `offset` is on, without its line break.
pub(crate) fn line_end(source: &str, offset: usize) -> usize {
    let rest = source.as_bytes().get(offset..).unwrap_or_default();
    memchr::memchr2(b'\n', b'\r', rest).map_or(source.len(), |found| offset + found)
}

/// The start of the line `offset` is on.
pub(crate) fn line_start(source: &str, offset: usize) -> usize {
    let before = source.as_bytes().get(..offset).unwrap_or_default();
    memchr::memrchr2(b'\n', b'\r', before).map_or(0, |found| found + 1)
}

/// Counts lines for offsets that never go back.
pub(crate) struct LineCounter<'s> {
    source: &'s str,
    at: usize,
    line: usize,
}

impl<'s> LineCounter<'s> {
    pub(crate) const fn new(source: &'s str) -> Self {
        Self { source, at: 0, line: 1 }
    }

    /// The line of an offset, counted from 1.
    pub(crate) fn line_of(&mut self, offset: usize) -> usize {
        let bytes = self.source.as_bytes();
        for found in memchr::memchr2_iter(b'\n', b'\r', bytes.get(self.at..offset).unwrap_or_default()) {
            let at = self.at + found;
            let crlf = bytes.get(at) == Some(&b'\r') && bytes.get(at + 1) == Some(&b'\n');
            self.line += usize::from(!crlf);
        }
        self.at = self.at.max(offset);
        self.line
    }
}
