//! The grammar of `?labelSelector=`, with upstream's messages.

use palisade_base::field_error::{FieldError, aggregate};
use palisade_base::label_selector::{LabelSelector, Operator, Requirement};
use palisade_base::version::KubeVersion;
use thiserror::Error;

use crate::rest::names;
use crate::status::{Result, Status};

/// Reads `?labelSelector=`.
pub fn parse_labels(text: &str) -> Result<LabelSelector> {
    Parser::new(text).parse().map_err(|error| Status::bad_request(error.to_string()))
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    End,
    Open,
    Close,
    Comma,
    Not,
    Equals,
    DoubleEquals,
    NotEquals,
    Greater,
    Less,
    In,
    NotIn,
    Identifier,
}

struct Parser {
    tokens: Vec<(Token, String)>,
    at: usize,
}

/// Why a label selector cannot be read, worded as upstream's parser does.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
enum LabelSelectorError {
    /// Another token was expected.
    #[error("found '{found}', expected: {expected}")]
    Unexpected { found: String, expected: &'static str },
    /// `in` and `notin` without a list.
    #[error("found '{0}' expected: '('")]
    NoList(String),
    /// Names or values that labels cannot have.
    #[error("{}", aggregate(.0))]
    Invalid(Vec<FieldError>),
    /// A requirement cannot be read.
    #[error("unable to parse requirement: {0}")]
    Requirement(Box<Self>),
}

fn unexpected<T>(found: String, expected: &'static str) -> Parsed<T> {
    Err(LabelSelectorError::Unexpected { found, expected })
}

type Parsed<T> = std::result::Result<T, LabelSelectorError>;

impl Parser {
    fn new(text: &str) -> Self {
        let mut tokens = Vec::new();
        let chars: Vec<char> = text.chars().collect();
        let is_special = |c: char| matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<');
        let mut i = 0;
        while i < chars.len() {
            let c = chars[i];
            if matches!(c, ' ' | '\t' | '\r' | '\n') {
                i += 1;
            } else if is_special(c) {
                let two: String = chars[i..chars.len().min(i + 2)].iter().collect();
                let (token, text) = match (c, two.as_str()) {
                    (_, "==") => (Token::DoubleEquals, two),
                    (_, "!=") => (Token::NotEquals, two),
                    ('=', _) => (Token::Equals, "=".into()),
                    ('!', _) => (Token::Not, "!".into()),
                    ('(', _) => (Token::Open, "(".into()),
                    (')', _) => (Token::Close, ")".into()),
                    (',', _) => (Token::Comma, ",".into()),
                    ('>', _) => (Token::Greater, ">".into()),
                    _ => (Token::Less, "<".into()),
                };
                i += text.chars().count();
                tokens.push((token, text));
            } else {
                let start = i;
                while i < chars.len() && !is_special(chars[i]) && !chars[i].is_ascii_whitespace() {
                    i += 1;
                }
                let word: String = chars[start..i].iter().collect();
                let token = match word.as_str() {
                    "in" => Token::In,
                    "notin" => Token::NotIn,
                    _ => Token::Identifier,
                };
                tokens.push((token, word));
            }
        }
        tokens.push((Token::End, String::new()));
        Self { tokens, at: 0 }
    }

    /// The next token; `in` and `notin` are plain words where values are expected.
    fn peek(&self, values: bool) -> (Token, String) {
        let (token, text) = self.tokens.get(self.at).cloned().unwrap_or((Token::End, String::new()));
        match token {
            Token::In | Token::NotIn if values => (Token::Identifier, text),
            token => (token, text),
        }
    }

    fn next(&mut self, values: bool) -> (Token, String) {
        let found = self.peek(values);
        self.at += 1;
        found
    }

    fn parse(mut self) -> Parsed<LabelSelector> {
        let mut requirements = Vec::new();
        loop {
            let (token, text) = self.peek(true);
            match token {
                Token::Identifier | Token::Not => {
                    let requirement = self
                        .requirement()
                        .map_err(|error| LabelSelectorError::Requirement(Box::new(error)))?;
                    requirements.push(requirement);
                    let (token, text) = self.next(true);
                    match token {
                        Token::End => break,
                        Token::Comma => {
                            let (token, text) = self.peek(true);
                            if token != Token::Identifier && token != Token::Not {
                                return unexpected(text, "identifier after ','");
                            }
                        }
                        _ => return unexpected(text, "',' or 'end of string'"),
                    }
                }
                Token::End => break,
                _ => return unexpected(text, "!, identifier, or 'end of string'"),
            }
        }
        requirements.sort_by(|a: &Requirement, b| a.key.cmp(&b.key));
        Ok(LabelSelector { requirements })
    }

    fn requirement(&mut self) -> Parsed<Requirement> {
        let (mut token, mut key) = self.next(true);
        let negated = token == Token::Not;
        if negated {
            (token, key) = self.next(true);
        }
        if token != Token::Identifier {
            return unexpected(key, "identifier");
        }
        let messages = names::qualified_name(&key, KubeVersion::LATEST);
        if !messages.is_empty() {
            let error = FieldError::invalid("<nil>", key.as_str(), messages.join("; "));
            return Err(LabelSelectorError::Invalid(vec![error]));
        }
        if matches!(self.peek(true).0, Token::End | Token::Comma) {
            let operator = if negated { Operator::DoesNotExist } else { Operator::Exists };
            return Ok(Requirement { key, operator, values: Vec::new() });
        }
        if negated {
            return Ok(Requirement { key, operator: Operator::DoesNotExist, values: Vec::new() });
        }
        let (token, text) = self.next(false);
        let operator = match token {
            Token::In => Operator::In,
            Token::NotIn => Operator::NotIn,
            Token::Equals | Token::DoubleEquals => Operator::Equals,
            Token::NotEquals => Operator::NotEquals,
            Token::Greater => Operator::GreaterThan,
            Token::Less => Operator::LessThan,
            _ => return unexpected(text, "in, notin, =, ==, !=, gt, lt"),
        };
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => self.exact_value()?,
        };
        let mut problems = Vec::new();
        for (i, value) in values.iter().enumerate() {
            if matches!(operator, Operator::GreaterThan | Operator::LessThan) && value.parse::<i64>().is_err()
            {
                let why = "for 'Gt', 'Lt' operators, the value must be an integer";
                problems.push(FieldError::invalid(format!("values[{i}]"), value.as_str(), why));
            }
            let messages = names::label_value(value, KubeVersion::LATEST);
            if !messages.is_empty() {
                let at = format!("values[{i}][{key}]");
                problems.push(FieldError::invalid(at, value.as_str(), messages.join("; ")));
            }
        }
        if problems.is_empty() {
            Ok(Requirement { key, operator, values })
        } else {
            Err(LabelSelectorError::Invalid(problems))
        }
    }

    fn values(&mut self) -> Parsed<Vec<String>> {
        let (token, text) = self.next(true);
        if token != Token::Open {
            return Err(LabelSelectorError::NoList(text));
        }
        let (token, text) = self.peek(true);
        let mut list: Vec<String> = Vec::new();
        match token {
            Token::Identifier | Token::Comma => {
                self.identifiers(&mut list)?;
                if self.next(true).0 != Token::Close {
                    return unexpected(text, "')'");
                }
            }
            Token::Close => {
                self.next(true);
                list.push(String::new());
            }
            _ => return unexpected(text, "',', ')' or identifier"),
        }
        list.sort();
        list.dedup();
        Ok(list)
    }

    fn identifiers(&mut self, list: &mut Vec<String>) -> Parsed<()> {
        loop {
            let (token, text) = self.next(true);
            match token {
                Token::Identifier => {
                    list.push(text);
                    let (token, text) = self.peek(true);
                    match token {
                        Token::Comma => {}
                        Token::Close => return Ok(()),
                        _ => return unexpected(text, "',' or ')'"),
                    }
                }
                Token::Comma => {
                    if list.is_empty() {
                        list.push(String::new());
                    }
                    match self.peek(true).0 {
                        Token::Close => {
                            list.push(String::new());
                            return Ok(());
                        }
                        Token::Comma => list.push(String::new()),
                        _ => {}
                    }
                }
                _ => return unexpected(text, "',', or identifier"),
            }
        }
    }

    fn exact_value(&mut self) -> Parsed<Vec<String>> {
        if matches!(self.peek(true).0, Token::End | Token::Comma) {
            return Ok(vec![String::new()]);
        }
        let (token, text) = self.next(true);
        if token == Token::Identifier { Ok(vec![text]) } else { unexpected(text, "identifier") }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selects_by_labels() {
        let object = json!({"metadata": {"labels": {"a": "1", "b": "x"}}});
        for (text, expected) in [
            ("a=1", true),
            ("a==1,b=x", true),
            ("a!=1", false),
            ("c!=1", true),
            ("a in (1,2)", true),
            ("a notin (1,2)", false),
            ("a", true),
            ("!a", false),
            ("!c", true),
            ("a>0", true),
            ("a<1", false),
            ("", true),
            ("b in (x)", true),
        ] {
            assert_eq!(parse_labels(text).unwrap().matches(&object), expected, "{text}");
        }
    }

    #[test]
    fn refuses_in_upstreams_words() {
        for (text, expected) in [
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("n in 1", "unable to parse requirement: found '1' expected: '('"),
            ("=x", "found '=', expected: !, identifier, or 'end of string'"),
            ("a,", "found '', expected: identifier after ','"),
        ] {
            assert_eq!(parse_labels(text).unwrap_err().message, expected, "{text}");
        }
    }
}
