//! The text of a template to its tree: actions, pipelines, trimming.
//!
//! Implements: Go, package text/template, "Actions", "Arguments", "Pipelines", "Variables".
//! <https://pkg.go.dev/text/template>
//!
//! Names of functions are resolved when they are called, so that a template is refused only for what it runs.

use std::rc::Rc;

use thiserror::Error;

/// Bytes of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Range {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// What is wrong with the text of a template.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SyntaxError {
    /// An action, string or comment that has no end.
    #[error("{0} is not closed")]
    Unclosed(&'static str),
    /// A character or word where none is possible.
    #[error("unexpected {found} in {context}")]
    Unexpected {
        /// The word.
        found: String,
        /// The construct.
        context: &'static str,
    },
    /// `{{ end }}` or `{{ else }}` of nothing, or a block without its end.
    #[error("{0}")]
    Structure(&'static str),
    /// A variable that is not declared.
    #[error("undefined variable {0:?}")]
    Variable(String),
    /// More levels than any template needs.
    #[error("nested too deeply")]
    TooDeep,
}

/// Something to write or do.
#[derive(Debug)]
pub(crate) enum Node {
    Text(Range),
    Action(Pipeline),
    If(Branch),
    With(Branch),
    Range(Branch),
    Template { name: Rc<str>, pipe: Option<Pipeline>, span: Range },
    Break,
    Continue,
}

/// `if`, `with` or `range` with its `else`.
#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) pipe: Pipeline,
    pub(crate) body: Vec<Node>,
    pub(crate) otherwise: Vec<Node>,
}

/// Commands whose results go to the next.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) declared: Vec<Rc<str>>,
    /// `=` instead of `:=`.
    pub(crate) assigns: bool,
    pub(crate) commands: Vec<Vec<Operand>>,
    pub(crate) span: Range,
}

/// A word of a command.
#[derive(Debug)]
pub(crate) enum Operand {
    Dot,
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(Rc<str>),
    /// `.a.b`
    Field(Vec<Rc<str>>),
    /// `$x.a.b`
    Variable(Rc<str>, Vec<Rc<str>>),
    /// A function.
    Name(Rc<str>),
    /// `(pipeline).a.b`
    Paren(Box<Pipeline>, Vec<Rc<str>>),
}

/// A template that others can use by name.
#[derive(Debug, Default)]
pub(crate) struct Define {
    /// Of a file, nothing.
    pub(crate) name: Rc<str>,
    pub(crate) body: Vec<Node>,
}

/// A parsed text.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// The text itself, which is a template as well, by the name of its file.
    pub(crate) body: Rc<Define>,
    pub(crate) defines: Vec<Rc<Define>>,
}

/// A mistake and its place.
#[derive(Debug)]
pub(crate) struct Misread {
    pub(crate) error: SyntaxError,
    pub(crate) at: Range,
}

const MAX_DEPTH: usize = 100;

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Dot,
    Field(String),
    Variable(String),
    Word(String),
    Int(i64),
    Float(f64),
    Str(String),
    Open,
    Close,
    Pipe,
    Declare,
    Assign,
    Comma,
}

#[derive(Clone, Debug)]
struct Lexeme {
    token: Token,
    at: Range,
    /// Whether white space stands before it: `a.b` and `a .b` differ.
    spaced: bool,
}

/// A piece of the text: literal bytes, or an action.
enum Piece {
    Text(Range),
    Action(Vec<Lexeme>, Range),
}

fn range(start: usize, end: usize) -> Range {
    let narrow = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    Range { start: narrow(start), end: narrow(end) }
}

/// Parses a template. `known` are variables that exist already: `$` always does.
pub(crate) fn parse(source: &str) -> Result<Tree, Misread> {
    let pieces = pieces(source)?;
    let mut parser = Parser {
        pieces: pieces.into_iter(),
        tree: Tree::default(),
        depth: 0,
        variables: vec!["$".into()],
        end: range(source.len(), source.len()),
    };
    let (body, stop) = parser.list(false)?;
    if let Some((_, at)) = stop {
        return Err(Misread { error: SyntaxError::Structure("unexpected {{end}} or {{else}}"), at });
    }
    parser.tree.body = Rc::new(Define { name: "".into(), body });
    Ok(parser.tree)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Divides a text into literals and actions, and trims as the actions request.
fn pieces(source: &str) -> Result<Vec<Piece>, Misread> {
    let bytes = source.as_bytes();
    let mut pieces = Vec::new();
    let mut at = 0;
    let mut trim_next = false;
    loop {
        let rest = source.get(at..).unwrap_or_default();
        let open = rest.find("{{").map(|found| at + found);
        let (mut start, mut end) = (at, open.unwrap_or(source.len()));
        if trim_next {
            while start < end && bytes.get(start).copied().is_some_and(is_space) {
                start += 1;
            }
        }
        let inner = open.map(|open| open + 2);
        let trims_left = inner.is_some_and(|inner| {
            bytes.get(inner) == Some(&b'-') && bytes.get(inner + 1).copied().is_some_and(is_space)
        });
        if trims_left {
            while end > start && bytes.get(end - 1).copied().is_some_and(is_space) {
                end -= 1;
            }
        }
        if end > start {
            pieces.push(Piece::Text(range(start, end)));
        }
        let (Some(open), Some(inner)) = (open, inner) else { return Ok(pieces) };
        let inner = if trims_left { inner + 1 } else { inner };
        let unclosed = |what| Misread { error: SyntaxError::Unclosed(what), at: range(open, open + 2) };
        let body = source.get(inner..).unwrap_or_default();
        let lead = body.len() - body.trim_start_matches([' ', '\t', '\r', '\n']).len();
        if body.get(lead..).is_some_and(|body| body.starts_with("/*")) {
            let close = body.find("*/").ok_or_else(|| unclosed("a comment"))?;
            let after = body.get(close + 2..).unwrap_or_default();
            let tail = after.trim_start_matches([' ', '\t', '\r', '\n']);
            let blank = after.len() - tail.len();
            let (length, trims) = if tail.starts_with("}}") {
                (blank + 2, false)
            } else if blank > 0 && tail.starts_with("-}}") {
                (blank + 3, true)
            } else {
                return Err(unclosed("a comment"));
            };
            at = inner + close + 2 + length;
            trim_next = trims;
            continue;
        }
        let (lexemes, after, trims) = action(source, inner, open)?;
        pieces.push(Piece::Action(lexemes, range(open, after)));
        at = after;
        trim_next = trims;
    }
}

/// The words of an action from `at` on, the byte after it, and whether it trims what follows.
fn action(source: &str, mut at: usize, open: usize) -> Result<(Vec<Lexeme>, usize, bool), Misread> {
    let mut lexemes = Vec::new();
    let bytes = source.as_bytes();
    let mut spaced = true;
    let mut parens = 0_usize;
    loop {
        let rest = source.get(at..).unwrap_or_default();
        let fail = |error| Misread { error, at: range(open, at.max(open + 2)) };
        let Some(&byte) = bytes.get(at) else { return Err(fail(SyntaxError::Unclosed("an action"))) };
        if rest.starts_with("}}") {
            if parens > 0 {
                return Err(fail(SyntaxError::Unclosed("a parenthesis")));
            }
            return Ok((lexemes, at + 2, false));
        }
        if is_space(byte) {
            if rest.trim_start_matches([' ', '\t', '\r', '\n']).starts_with("-}}") {
                if parens > 0 {
                    return Err(fail(SyntaxError::Unclosed("a parenthesis")));
                }
                let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
                return Ok((lexemes, at + blank + 3, true));
            }
            at += 1;
            spaced = true;
            continue;
        }
        let (token, length) = lexeme(rest).map_err(fail)?;
        match token {
            Token::Open => parens += 1,
            Token::Close if parens == 0 => {
                return Err(fail(SyntaxError::Unexpected { found: "\")\"".into(), context: "an action" }));
            }
            Token::Close => parens -= 1,
            _ => {}
        }
        lexemes.push(Lexeme { token, at: range(at, at + length), spaced });
        at += length;
        spaced = false;
    }
}

fn lexeme(rest: &str) -> Result<(Token, usize), SyntaxError> {
    let word = |text: &str| {
        text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').map(char::len_utf8).sum::<usize>()
    };
    let mut chars = rest.chars();
    let first = chars.next().unwrap_or_default();
    let second = chars.next().unwrap_or_default();
    let part = |from: usize, to: usize| rest.get(from..to).unwrap_or_default();
    Ok(match first {
        '(' => (Token::Open, 1),
        ')' => (Token::Close, 1),
        '|' => (Token::Pipe, 1),
        ',' => (Token::Comma, 1),
        '=' => (Token::Assign, 1),
        ':' if second == '=' => (Token::Declare, 2),
        '"' => quoted(rest)?,
        '`' => {
            let end = part(1, rest.len()).find('`').ok_or(SyntaxError::Unclosed("a raw string"))?;
            (Token::Str(part(1, 1 + end).to_owned()), end + 2)
        }
        '\'' => character(rest)?,
        '.' if second.is_ascii_digit() => number(rest)?,
        '.' => {
            let length = word(part(1, rest.len()));
            if length == 0 {
                (Token::Dot, 1)
            } else {
                (Token::Field(part(1, 1 + length).to_owned()), 1 + length)
            }
        }
        '$' => {
            let length = word(part(1, rest.len()));
            (Token::Variable(part(0, 1 + length).to_owned()), 1 + length)
        }
        '+' | '-' if second.is_ascii_digit() || second == '.' => number(rest)?,
        c if c.is_ascii_digit() => number(rest)?,
        c if c.is_alphabetic() || c == '_' => {
            let length = word(rest);
            (Token::Word(part(0, length).to_owned()), length)
        }
        c => return Err(SyntaxError::Unexpected { found: format!("{c:?}"), context: "an action" }),
    })
}

/// A string in double quotes, with Go's escapes.
fn quoted(rest: &str) -> Result<(Token, usize), SyntaxError> {
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((Token::Str(text), at + 1)),
            '\n' => break,
            '\\' => {
                let Some((_, escape)) = chars.next() else { break };
                match escape {
                    'n' => text.push('\n'),
                    't' => text.push('\t'),
                    'r' => text.push('\r'),
                    'a' => text.push('\u{7}'),
                    'b' => text.push('\u{8}'),
                    'f' => text.push('\u{c}'),
                    'v' => text.push('\u{b}'),
                    '\\' | '"' | '\'' => text.push(escape),
                    'x' | 'u' | 'U' => {
                        let digits = match escape {
                            'x' => 2,
                            'u' => 4,
                            _ => 8,
                        };
                        let hex: String = chars.by_ref().take(digits).map(|(_, c)| c).collect();
                        let code = u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32);
                        let bad = || SyntaxError::Unexpected {
                            found: format!("\\{escape}{hex}"),
                            context: "a string",
                        };
                        text.push(code.ok_or_else(bad)?);
                    }
                    '0'..='7' => {
                        let rest: String = chars.by_ref().take(2).map(|(_, c)| c).collect();
                        let code =
                            u32::from_str_radix(&format!("{escape}{rest}"), 8).ok().and_then(char::from_u32);
                        let bad = || SyntaxError::Unexpected {
                            found: format!("\\{escape}{rest}"),
                            context: "a string",
                        };
                        text.push(code.ok_or_else(bad)?);
                    }
                    other => {
                        return Err(SyntaxError::Unexpected {
                            found: format!("\\{other}"),
                            context: "a string",
                        });
                    }
                }
            }
            c => text.push(c),
        }
    }
    Err(SyntaxError::Unclosed("a string"))
}

/// A character constant is its number.
fn character(rest: &str) -> Result<(Token, usize), SyntaxError> {
    let inner = rest.get(1..).unwrap_or_default();
    let mut chars = inner.chars();
    let (code, length) = match (chars.next(), chars.next()) {
        (Some('\\'), Some(escape)) => {
            let code = match escape {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                other => other,
            };
            (code, 1 + escape.len_utf8())
        }
        (Some(c), _) => (c, c.len_utf8()),
        (None, _) => return Err(SyntaxError::Unclosed("a character")),
    };
    if inner.get(length..).is_some_and(|rest| rest.starts_with('\'')) {
        Ok((Token::Int(i64::from(u32::from(code))), length + 2))
    } else {
        Err(SyntaxError::Unclosed("a character"))
    }
}

fn number(rest: &str) -> Result<(Token, usize), SyntaxError> {
    let digits = rest.get(1..).unwrap_or_default();
    let mut length = 1;
    let mut before = rest.chars().next().unwrap_or_default();
    let is_hex =
        rest.trim_start_matches(['+', '-']).get(..2).is_some_and(|start| start.eq_ignore_ascii_case("0x"));
    for c in digits.chars() {
        let exponent = if is_hex { matches!(before, 'p' | 'P') } else { matches!(before, 'e' | 'E') };
        let exponent_sign = matches!(c, '+' | '-') && exponent;
        if !(c.is_ascii_alphanumeric() || c == '_' || c == '.' || exponent_sign) {
            break;
        }
        length += c.len_utf8();
        before = c;
    }
    let text = rest.get(..length).unwrap_or_default();
    let plain: String = text.chars().filter(|c| *c != '_').collect();
    let bad = || SyntaxError::Unexpected { found: format!("{text:?}"), context: "a number" };
    let (sign, digits) = match plain.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, plain.strip_prefix('+').unwrap_or(&plain)),
    };
    let radix =
        |digits: &str, radix| i64::from_str_radix(digits, radix).map(|value| sign * value).map_err(|_| bad());
    let lower = digits.to_ascii_lowercase();
    let token = if let Some((mantissa, exponent)) =
        lower.strip_prefix("0x").and_then(|hex| hex.split_once('p'))
    {
        let value = hex_float(mantissa, exponent).ok_or_else(bad)?;
        Token::Float(if sign < 0 { -value } else { value })
    } else if let Some(hex) = lower.strip_prefix("0x") {
        Token::Int(radix(hex, 16)?)
    } else if let Some(octal) = lower.strip_prefix("0o") {
        Token::Int(radix(octal, 8)?)
    } else if let Some(binary) = lower.strip_prefix("0b") {
        Token::Int(radix(binary, 2)?)
    } else if let Some(octal) =
        lower.strip_prefix('0').filter(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    {
        Token::Int(radix(octal, 8)?)
    } else if lower.bytes().all(|b| b.is_ascii_digit()) {
        Token::Int(radix(&lower, 10)?)
    } else {
        let value: f64 = lower.parse().map_err(|_| bad())?;
        Token::Float(if sign < 0 { -value } else { value })
    };
    Ok((token, length))
}

/// `1.8` and `3` of `0x1.8p3`: a mantissa in hexadecimal digits, and a power of two.
fn hex_float(mantissa: &str, exponent: &str) -> Option<f64> {
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: String = [whole, fraction].concat();
    // What does not fit into the mantissa of a float is no number that a template means.
    let value = u64::from_str_radix(&digits, 16).ok().filter(|value| *value <= 1 << 53)?;
    let shift = i32::try_from(fraction.len()).ok()?.checked_mul(4)?;
    let exponent = exponent.parse::<i32>().ok()?.checked_sub(shift)?;
    #[expect(clippy::cast_precision_loss, reason = "it fits into the mantissa")]
    let value = (value as f64) * f64::from(exponent).exp2();
    value.is_finite().then_some(value)
}

/// What ended a list of nodes, with the rest of its action.
type Stop = (Ending, Range);

enum Ending {
    End,
    Else(Vec<Lexeme>),
}

struct Parser {
    pieces: std::vec::IntoIter<Piece>,
    tree: Tree,
    depth: usize,
    variables: Vec<Rc<str>>,
    end: Range,
}

impl Parser {
    fn list(&mut self, in_loop: bool) -> Result<(Vec<Node>, Option<Stop>), Misread> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Misread { error: SyntaxError::TooDeep, at: self.end });
        }
        let mut nodes = Vec::new();
        while let Some(piece) = self.pieces.next() {
            let (lexemes, span) = match piece {
                Piece::Text(at) => {
                    nodes.push(Node::Text(at));
                    continue;
                }
                Piece::Action(lexemes, span) => (lexemes, span),
            };
            let mut words = Words { lexemes, at: 0, span, depth: self.depth };
            let keyword = match words.peek() {
                Some(Token::Word(word)) => word.clone(),
                _ => String::new(),
            };
            match keyword.as_str() {
                "end" => {
                    self.depth -= 1;
                    return Ok((nodes, Some((Ending::End, span))));
                }
                "else" => {
                    self.depth -= 1;
                    words.skip();
                    return Ok((nodes, Some((Ending::Else(words.rest()), span))));
                }
                "if" | "with" | "range" => {
                    words.skip();
                    nodes.push(self.branch(&keyword, words, in_loop)?);
                }
                "break" | "continue" if words.len() == 1 => {
                    if !in_loop {
                        return Err(Misread {
                            error: SyntaxError::Structure("{{break}} or {{continue}} outside {{range}}"),
                            at: span,
                        });
                    }
                    nodes.push(if keyword == "break" { Node::Break } else { Node::Continue });
                }
                "define" => {
                    words.skip();
                    let name = words.string()?;
                    words.done("define clause")?;
                    self.define(name, span)?;
                }
                "block" => {
                    words.skip();
                    let name = words.string()?;
                    let pipe = words.pipeline(&mut self.variables)?;
                    words.done("block clause")?;
                    self.define(Rc::clone(&name), span)?;
                    nodes.push(Node::Template { name, pipe: Some(pipe), span });
                }
                "template" => {
                    words.skip();
                    let name = words.string()?;
                    let pipe = if words.peek().is_some() {
                        Some(words.pipeline(&mut self.variables)?)
                    } else {
                        None
                    };
                    words.done("template clause")?;
                    nodes.push(Node::Template { name, pipe, span });
                }
                _ => {
                    let pipe = words.pipeline(&mut self.variables)?;
                    words.done("an action")?;
                    nodes.push(Node::Action(pipe));
                }
            }
        }
        self.depth -= 1;
        Ok((nodes, None))
    }

    fn branch(&mut self, keyword: &str, mut words: Words, in_loop: bool) -> Result<Node, Misread> {
        let span = words.span;
        let known = self.variables.len();
        let pipe = words.pipeline_of(&mut self.variables, keyword == "range")?;
        words.done("a condition")?;
        let is_range = keyword == "range";
        // As in Go, what the body declares is known in the other branch as well.
        let (body, stop) = self.list(in_loop || is_range)?;
        let open = || Misread {
            error: SyntaxError::Structure("{{if}}, {{with}} or {{range}} without {{end}}"),
            at: span,
        };
        let otherwise = match stop.ok_or_else(open)? {
            (Ending::End, _) => Vec::new(),
            (Ending::Else(rest), at) => {
                let mut words = Words { lexemes: rest, at: 0, span: at, depth: self.depth };
                let chained = match words.peek() {
                    None => None,
                    Some(Token::Word(word)) if word == "if" || word == "with" => Some(word.clone()),
                    Some(_) => return Err(words.unexpected("{{else}}")),
                };
                if let Some(keyword) = chained {
                    words.skip();
                    self.depth += 1;
                    if self.depth > MAX_DEPTH {
                        return Err(Misread { error: SyntaxError::TooDeep, at });
                    }
                    // Its {{end}} is ours as well.
                    let node = self.branch(&keyword, words, in_loop)?;
                    self.depth -= 1;
                    vec![node]
                } else {
                    let (body, stop) = self.list(in_loop)?;
                    match stop.ok_or_else(open)? {
                        (Ending::End, _) => body,
                        (Ending::Else(_), at) => {
                            return Err(Misread { error: SyntaxError::Structure("{{else}} twice"), at });
                        }
                    }
                }
            }
        };
        self.variables.truncate(known);
        let branch = Branch { pipe, body, otherwise };
        Ok(match keyword {
            "if" => Node::If(branch),
            "with" => Node::With(branch),
            _ => Node::Range(branch),
        })
    }

    fn define(&mut self, name: Rc<str>, span: Range) -> Result<(), Misread> {
        let outer = std::mem::replace(&mut self.variables, vec!["$".into()]);
        let (body, stop) = self.list(false)?;
        self.variables = outer;
        match stop {
            Some((Ending::End, _)) => {
                self.tree.defines.push(Rc::new(Define { name, body }));
                Ok(())
            }
            _ => Err(Misread { error: SyntaxError::Structure("{{define}} without {{end}}"), at: span }),
        }
    }
}

/// The words of one action.
struct Words {
    lexemes: Vec<Lexeme>,
    at: usize,
    span: Range,
    depth: usize,
}

impl Words {
    fn peek(&self) -> Option<&Token> {
        self.lexemes.get(self.at).map(|lexeme| &lexeme.token)
    }

    const fn len(&self) -> usize {
        self.lexemes.len()
    }

    const fn skip(&mut self) {
        self.at += 1;
    }

    fn rest(self) -> Vec<Lexeme> {
        self.lexemes.into_iter().skip(self.at).collect()
    }

    fn unexpected(&self, context: &'static str) -> Misread {
        let (found, at) = match self.lexemes.get(self.at) {
            Some(lexeme) => (format!("{:?}", lexeme.token), lexeme.at),
            None => ("end of the action".to_owned(), self.span),
        };
        Misread { error: SyntaxError::Unexpected { found, context }, at }
    }

    fn done(&self, context: &'static str) -> Result<(), Misread> {
        if self.peek().is_none() { Ok(()) } else { Err(self.unexpected(context)) }
    }

    fn string(&mut self) -> Result<Rc<str>, Misread> {
        match self.peek() {
            Some(Token::Str(text)) => {
                let text = text.as_str().into();
                self.skip();
                Ok(text)
            }
            _ => Err(self.unexpected("the name of a template")),
        }
    }

    fn pipeline(&mut self, variables: &mut Vec<Rc<str>>) -> Result<Pipeline, Misread> {
        self.pipeline_of(variables, false)
    }

    /// A pipeline up to the end of the action or a closing parenthesis; `range` may declare two variables.
    fn pipeline_of(&mut self, variables: &mut Vec<Rc<str>>, range: bool) -> Result<Pipeline, Misread> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Misread { error: SyntaxError::TooDeep, at: self.span });
        }
        let (declared, assigns) = self.declaration(range);
        for name in &declared {
            if assigns && !variables.contains(name) {
                return Err(Misread { error: SyntaxError::Variable(name.to_string()), at: self.span });
            }
        }
        let mut commands = Vec::new();
        loop {
            let command = self.command(variables)?;
            if command.is_empty() {
                return Err(self.unexpected("a pipeline"));
            }
            commands.push(command);
            if self.peek() == Some(&Token::Pipe) {
                self.skip();
                // Go takes `a |` for `a`.
                if matches!(self.peek(), None | Some(Token::Close)) {
                    break;
                }
            } else {
                break;
            }
        }
        if !assigns {
            variables.extend(declared.iter().cloned());
        }
        self.depth -= 1;
        Ok(Pipeline { declared, assigns, commands, span: self.span })
    }

    fn declaration(&mut self, range: bool) -> (Vec<Rc<str>>, bool) {
        let token = |at: usize| self.lexemes.get(self.at + at).map(|lexeme| &lexeme.token);
        let (names, length) = match (token(0), token(1), token(2), token(3)) {
            (Some(Token::Variable(name)), Some(Token::Declare | Token::Assign), ..) => (vec![name], 1),
            (
                Some(Token::Variable(first)),
                Some(Token::Comma),
                Some(Token::Variable(second)),
                Some(Token::Declare | Token::Assign),
            ) if range => (vec![first, second], 3),
            _ => return (Vec::new(), false),
        };
        let names = names.into_iter().map(|name| name.as_str().into()).collect();
        let assigns = token(length) == Some(&Token::Assign);
        self.at += length + 1;
        (names, assigns)
    }

    fn command(&mut self, variables: &mut Vec<Rc<str>>) -> Result<Vec<Operand>, Misread> {
        let mut operands = Vec::new();
        while let Some(lexeme) = self.lexemes.get(self.at) {
            if matches!(lexeme.token, Token::Pipe | Token::Close) {
                break;
            }
            if !operands.is_empty() && !lexeme.spaced {
                return Err(self.unexpected("an operand"));
            }
            operands.push(self.operand(variables)?);
        }
        Ok(operands)
    }

    fn operand(&mut self, variables: &mut Vec<Rc<str>>) -> Result<Operand, Misread> {
        let Some(lexeme) = self.lexemes.get(self.at).cloned() else {
            return Err(self.unexpected("an operand"));
        };
        self.skip();
        Ok(match lexeme.token {
            Token::Dot => Operand::Dot,
            Token::Field(first) => {
                let mut fields = vec![first.as_str().into()];
                fields.extend(self.fields());
                Operand::Field(fields)
            }
            Token::Variable(name) => {
                let name: Rc<str> = name.as_str().into();
                if !variables.contains(&name) {
                    return Err(Misread { error: SyntaxError::Variable(name.to_string()), at: lexeme.at });
                }
                Operand::Variable(name, self.fields())
            }
            Token::Int(value) => Operand::Int(value),
            Token::Float(value) => Operand::Float(value),
            Token::Str(text) => Operand::Str(text.as_str().into()),
            Token::Word(word) => match word.as_str() {
                "true" => Operand::Bool(true),
                "false" => Operand::Bool(false),
                "nil" => Operand::Nil,
                name => {
                    let name = Operand::Name(name.into());
                    let fields = self.fields();
                    if fields.is_empty() {
                        name
                    } else {
                        let pipe = Pipeline {
                            declared: Vec::new(),
                            assigns: false,
                            commands: vec![vec![name]],
                            span: self.span,
                        };
                        Operand::Paren(Box::new(pipe), fields)
                    }
                }
            },
            Token::Open => {
                let pipe = self.pipeline(variables)?;
                if self.peek() != Some(&Token::Close) {
                    return Err(self.unexpected("a parenthesis"));
                }
                self.skip();
                Operand::Paren(Box::new(pipe), self.fields())
            }
            _ => {
                self.at -= 1;
                return Err(self.unexpected("an operand"));
            }
        })
    }

    /// `.a.b` right after an operand.
    fn fields(&mut self) -> Vec<Rc<str>> {
        let mut fields = Vec::new();
        while let Some(Lexeme { token: Token::Field(name), spaced: false, .. }) = self.lexemes.get(self.at) {
            fields.push(name.as_str().into());
            self.at += 1;
        }
        fields
    }
}
