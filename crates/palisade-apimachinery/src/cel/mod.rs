//! The expressions clients may leave with us: the language, and the bounds within which strangers' expressions are read
//! and run.
//!
//! Implements: Common Expression Language in Kubernetes. Expressions are parsed by the
//! `cel` crate and run by `eval`, which charges every step to a [`Budget`]: whatever the expression and the values, time
//! and memory are bounded. <https://kubernetes.io/docs/reference/using-api/cel/>

pub mod authorizer;
pub mod budget;
pub mod composition;
pub(crate) mod estimate;
mod eval;
mod formats;
mod functions;
mod times;
mod url;
pub mod value;

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::{Env, Program};
use thiserror::Error;

use budget::Budget;
pub use budget::Fault;
pub use value::{Key, Val};

/// Words that cannot be names in expressions.
pub(crate) const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Code points of an expression, as cel-go has it.
const MAX_CODE_POINTS: usize = 100_000;
/// Operators, brackets and commas of an expression, those in texts and comments included. The parser spends stack, time and
/// memory on each, and what is a text for the parser need not be one for [`is_too_deep`].
const MAX_MARKS: usize = 4_000;
/// Brackets inside brackets.
const MAX_DEPTH: usize = 32;
/// Operators in one expression.
const MAX_OPERATORS: usize = 400;
/// Levels of the tree of an expression: the interpreter recurses for each.
const MAX_TREE: usize = 200;
/// What the parser needs for that, and a lot more.
const STACK: usize = 64 << 20;

/// The grammar, with the macros Kubernetes has.
static LANGUAGE: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib().with_optional_support(true)));

/// An expression that was read.
#[derive(Debug)]
pub struct Expression {
    program: Program,
    variables: BTreeSet<String>,
}

impl Expression {
    /// Whether it names a variable.
    #[must_use]
    pub fn names(&self, variable: &str) -> bool {
        self.variables.contains(variable)
    }

    /// Its tree.
    pub(crate) fn tree(&self) -> &IdedExpr {
        self.program.expression()
    }
}

/// Why an expression cannot be compiled, worded as cel-go does.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CompileError {
    /// More code points than any expression may have.
    #[error(
        "ERROR: <input>:-1:0: expression code point size exceeds limit: size: {size}, limit {MAX_CODE_POINTS}"
    )]
    TooLong {
        /// Code points.
        size: usize,
    },
    /// More brackets, operators or levels than the parser and the interpreter have stack for.
    #[error("ERROR: <input>:1:1: expression recursion limit exceeded")]
    TooDeep,
    /// It does not follow the grammar; the text is the parser's.
    #[error("{0}")]
    Syntax(String),
    /// The parser gave up.
    #[error("ERROR: <input>:1:1: the expression cannot be read")]
    Unreadable,
    /// It names what is not there.
    #[error("ERROR: <input>:{line}:{}: {problem}\n | {shown}\n | {}^", .column + 1, ".".repeat(*.column))]
    Reference {
        /// What is wrong with the name.
        problem: String,
        /// The line it is in, from 1.
        line: usize,
        /// Its text.
        shown: String,
        /// Code points before the name in that line.
        column: usize,
    },
}

impl CompileError {
    /// An error with the place it is about.
    pub(crate) fn at(expression: &str, at: usize, problem: String) -> Self {
        let before = expression.get(..at).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
        let shown = expression.lines().nth(line - 1).unwrap_or_default().to_owned();
        Self::Reference { problem, line, shown, column }
    }
}

/// What an expression may use besides the functions of the language.
#[derive(Debug, Clone, Copy, Default)]
pub struct Environment<'e> {
    /// Variables.
    pub variables: &'e [&'e str],
    /// The names that `variables` holds; none: there is no such variable.
    pub composed: Option<&'e [&'e str]>,
    /// Whether it may make objects: `Object.spec{…}` and `JSONPatch{…}`.
    pub objects: bool,
}

/// Reads an expression that may name the given variables.
pub fn compile(expression: &str, variables: &[&str]) -> Result<Expression, CompileError> {
    compile_in(expression, &Environment { variables, ..Environment::default() })
}

/// Reads an expression of an environment.
pub fn compile_in(expression: &str, environment: &Environment<'_>) -> Result<Expression, CompileError> {
    let size = expression.chars().count();
    if size > MAX_CODE_POINTS {
        return Err(CompileError::TooLong { size });
    }
    if is_too_deep(expression) {
        return Err(CompileError::TooDeep);
    }
    let program = parse(expression)?;
    let mut names = Names {
        environment,
        bound: Vec::new(),
        used: BTreeSet::new(),
        functions: BTreeSet::new(),
        fields: BTreeSet::new(),
    };
    names.of(program.expression());
    let (used, functions, fields) = (names.used, names.functions, names.fields);
    let composed = environment.composed.unwrap_or_default();
    if let Some(name) = fields.iter().find(|name| !composed.contains(&name.as_str())) {
        let found = find_word(expression, &format!("{}.{name}", composition::VARIABLES));
        let at = found.map_or(0, |at| at + composition::VARIABLES.len());
        return Err(CompileError::at(expression, at, format!("undefined field '{name}'")));
    }
    let unknown = used.iter().find(|name| !environment.variables.contains(&name.as_str()));
    match unknown.or_else(|| functions.first()) {
        Some(name) => {
            let at = find_word(expression, name).unwrap_or(0);
            let problem = format!("undeclared reference to '{name}' (in container '')");
            Err(CompileError::at(expression, at, problem))
        }
        None => Ok(Expression { program, variables: used }),
    }
}

/// Runs an expression within a cost, and returns what it spent.
pub fn evaluate(expression: &Expression, variables: &[(&str, Val)], limit: u64) -> (Result<Val, Fault>, u64) {
    let mut budget = Budget::new(limit);
    let outcome = eval::run(expression.tree(), variables, None, &mut budget);
    (outcome, budget.spent())
}

/// The names an expression uses.
struct Names<'e> {
    environment: &'e Environment<'e>,
    bound: Vec<&'e str>,
    used: BTreeSet<String>,
    /// Functions that do not exist.
    functions: BTreeSet<String>,
    /// What is selected from `variables`.
    fields: BTreeSet<String>,
}

impl<'e> Names<'e> {
    fn is_function(&self, name: &str) -> bool {
        let authorizes = self.environment.variables.contains(&"authorizer");
        functions::is_known(name) || authorizes && authorizer::FUNCTIONS.contains(&name)
    }

    /// Whether it is the variable that holds the others.
    fn is_composition(&self, expression: &IdedExpr) -> bool {
        let is_named = matches!(&expression.expr, Expr::Ident(name) if name == composition::VARIABLES);
        is_named && self.environment.composed.is_some() && !self.bound.contains(&composition::VARIABLES)
    }

    fn of(&mut self, expression: &'e IdedExpr) {
        match &expression.expr {
            Expr::Ident(name) => {
                let is_known = self.bound.contains(&name.as_str()) || functions::type_named(name).is_some();
                if !is_known {
                    self.used.insert(name.clone());
                }
            }
            Expr::Call(call) if eval::two_variables(call).is_some() => {
                let Some((first, second, parts)) = eval::two_variables(call) else { return };
                if let Some(target) = call.target.as_deref() {
                    self.of(target);
                }
                let known = self.bound.len();
                self.bound.extend([first, second]);
                for part in parts {
                    self.of(part);
                }
                self.bound.truncate(known);
            }
            Expr::Call(call) => {
                let name = call.func_name.as_str();
                match call.target.as_deref().map(|target| (target, &target.expr)) {
                    Some((_, Expr::Ident(space))) if functions::is_namespace(space) => {
                        if !functions::is_known_in(space, name) {
                            self.functions.insert(name.to_owned());
                        }
                    }
                    target => {
                        if !self.is_function(name) {
                            self.functions.insert(name.to_owned());
                        }
                        if let Some((target, _)) = target {
                            self.of(target);
                        }
                    }
                }
                call.args.iter().for_each(|argument| self.of(argument));
            }
            Expr::Select(select) if self.is_composition(&select.operand) => {
                self.fields.insert(select.field.clone());
            }
            Expr::Select(select) => self.of(&select.operand),
            Expr::List(list) => list.elements.iter().for_each(|element| self.of(element)),
            Expr::Map(map) => self.entries(&map.entries),
            Expr::Struct(structure) => {
                let name = structure.type_name.as_str();
                let is_object = name == "Object" || name == "JSONPatch" || name.starts_with("Object.");
                if !(self.environment.objects && is_object) {
                    self.functions.insert(structure.type_name.clone());
                }
                self.entries(&structure.entries);
            }
            Expr::Comprehension(it) => {
                self.of(&it.iter_range);
                self.of(&it.accu_init);
                let known = self.bound.len();
                self.bound.push(&it.accu_var);
                self.of(&it.result);
                self.bound.push(&it.iter_var);
                self.bound.extend(it.iter_var2.as_deref());
                self.of(&it.loop_cond);
                self.of(&it.loop_step);
                self.bound.truncate(known);
            }
            Expr::Unspecified | Expr::Literal(_) => {}
        }
    }

    fn entries(&mut self, entries: &'e [cel::common::ast::IdedEntryExpr]) {
        for entry in entries {
            match &entry.expr {
                EntryExpr::StructField(field) => self.of(&field.value),
                EntryExpr::MapEntry(entry) => {
                    self.of(&entry.key);
                    self.of(&entry.value);
                }
            }
        }
    }
}

/// Where a name stands alone.
pub(crate) fn find_word(expression: &str, name: &str) -> Option<usize> {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    expression.match_indices(name).map(|(at, _)| at).find(|&at| {
        let before = expression.get(..at).and_then(|text| text.chars().next_back());
        let after = expression.get(at + name.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(part_of_name) && !after.is_some_and(part_of_name)
    })
}

/// Whether the parser could run out of stack: it recurses for every bracket and operator.
fn is_too_deep(expression: &str) -> bool {
    let is_operator = |c: char| ".?!-+*/%|&=<>".contains(c);
    let is_mark = |c: &char| is_operator(*c) || "()[]{},:".contains(*c);
    let marks = expression.chars().filter(is_mark).count() + expression.matches("in").count();
    let (mut depth, mut deepest, mut operators) = (0_usize, 0, 0_usize);
    let mut quote = None;
    let mut characters = expression.chars();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(_), '\\') => {
                characters.next();
            }
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[' | '{') => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
            (None, c) if is_operator(c) => operators += 1,
            _ => {}
        }
    }
    deepest > MAX_DEPTH || operators > MAX_OPERATORS || marks > MAX_MARKS
}

/// Reads an expression where there is stack enough for it, and where a parser that gives up does no harm.
fn parse(expression: &str) -> Result<Program, CompileError> {
    let parsed = std::thread::scope(|scope| {
        let parser = std::thread::Builder::new().name("cel".to_owned()).stack_size(STACK);
        let thread = parser.spawn_scoped(scope, || {
            let program =
                LANGUAGE.compile(expression).map_err(|error| CompileError::Syntax(error.to_string()))?;
            if depth(program.expression()) > MAX_TREE { Err(CompileError::TooDeep) } else { Ok(program) }
        });
        thread.map(std::thread::ScopedJoinHandle::join)
    });
    match parsed {
        Ok(Ok(parsed)) => parsed,
        _ => Err(CompileError::Unreadable),
    }
}

/// The levels of a tree.
fn depth(expression: &IdedExpr) -> usize {
    let deepest = |parts: &mut dyn Iterator<Item = &IdedExpr>| parts.map(depth).max().unwrap_or(0);
    let of_entries = |entries: &[cel::common::ast::IdedEntryExpr]| {
        let parts = entries.iter().map(|entry| match &entry.expr {
            EntryExpr::StructField(field) => depth(&field.value),
            EntryExpr::MapEntry(entry) => depth(&entry.key).max(depth(&entry.value)),
        });
        parts.max().unwrap_or(0)
    };
    1 + match &expression.expr {
        Expr::Call(call) => deepest(&mut call.target.as_deref().into_iter().chain(&call.args)),
        Expr::Select(select) => depth(&select.operand),
        Expr::List(list) => deepest(&mut list.elements.iter()),
        Expr::Map(map) => of_entries(&map.entries),
        Expr::Struct(structure) => of_entries(&structure.entries),
        Expr::Comprehension(it) => {
            let parts = [&it.iter_range, &it.accu_init, &it.loop_cond, &it.loop_step, &it.result];
            deepest(&mut parts.into_iter())
        }
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(expression: &str, input: &serde_json::Value) -> Result<Val, String> {
        let compiled = compile(expression, &["self"]).map_err(|error| error.to_string())?;
        let (outcome, _) = evaluate(&compiled, &[("self", Val::from_json(input))], budget::PER_CALL);
        outcome.map_err(|error| error.to_string())
    }

    fn holds(expression: &str) {
        let input = serde_json::json!({
            "s": "Hello, World", "n": 3, "f": 1.5, "empty": "", "list": [3, 1, 2], "words": ["b", "a"],
            "tags": {"a": "x", "b": "y"}, "items": [{"name": "a", "port": 80}, {"name": "b", "port": 443}],
        });
        match run(expression, &input) {
            Ok(Val::Bool(true)) => {}
            other => panic!("{expression}: {other:?}"),
        }
    }

    #[test]
    fn the_language() {
        for expression in [
            "self.n == 3 && self.n != 4 && self.n >= 3 && self.n < 3.5",
            "1 + 2 * 3 == 7 && 7 / 2 == 3 && 7 % 4 == 3 && -self.n == -3 && 2u * 3u == 6u",
            "1.5 + self.f == 3.0 && double(3) == 3 && int('12') == 12 && string(1) == '1' && bool('true')",
            "'a' in ['b', 'a'] && 'a' in self.tags && !('z' in self.tags)",
            "has(self.s) && !has(self.nope) && !has(self.tags.z)",
            "self.list[0] == 3 && self.tags['a'] == 'x' && [1, [2]][1][0] == 2",
            "self.n > 5 ? false : true",
            "true || self.nope == 1",
            "self.nope == 1 || true",
            "!(false && self.nope == 1)",
            "self.list.all(x, x > 0) && self.list.exists(x, x == 2) && self.list.exists_one(x, x == 1)",
            "self.list.exists(x, x == 3 || x / 0 == 1)",
            "self.list.map(x, x * 2) == [6, 2, 4] && self.list.filter(x, x > 1) == [3, 2]",
            "self.list.map(x, x > 1, x + 1) == [4, 3] && self.tags.map(k, k) == ['a', 'b']",
            "self.tags.all(k, self.tags[k] != '')",
            "self.items.all(a, self.items.exists_one(b, a.name == b.name))",
            "self.?nope.orValue('d') == 'd' && self.?s.hasValue() && self.?tags.?z.orValue('') == ''",
            "self.tags[?'a'].orValue('') == 'x' && optional.of(1).value() == 1 && !optional.none().hasValue()",
            "optional.none().or(optional.of(2)).value() == 2 && optional.of(2).optMap(x, x + 1).value() == 3",
            "type(1) == int && type('') == string && type([]) == list && type({}) == map && type(null) == null_type",
            "size(self.s) == 12 && self.list.size() == 3 && size(self.tags) == 2",
            "{'a': 1, 'b': [2]}['b'] == [2] && {1: 'x'}[1] == 'x'",
            "null == null && self.s != null",
            "b'ab' + b'c' == b'abc' && dyn(1) == 1.0",
        ] {
            holds(expression);
        }
    }

    #[test]
    fn the_libraries() {
        for expression in [
            "self.s.contains('World') && self.s.startsWith('Hello') && self.s.endsWith('d') && self.s.matches('^H.*d$')",
            "self.s.lowerAscii() == 'hello, world' && self.s.upperAscii().charAt(0) == 'H' && ' a '.trim() == 'a'",
            "self.s.indexOf('o') == 4 && self.s.lastIndexOf('o') == 8 && self.s.indexOf('z') == -1",
            "self.s.substring(7) == 'World' && self.s.substring(0, 5) == 'Hello' && 'äbc'.substring(1) == 'bc'",
            "'a,b,c'.split(',') == ['a', 'b', 'c'] && 'a,b,c'.split(',', 2) == ['a', 'b,c'] && 'ab'.split('') == ['a', 'b']",
            "['a', 'b'].join('-') == 'a-b' && 'aXbX'.replace('X', '') == 'ab' && 'aaa'.replace('a', 'b', 2) == 'bba'",
            "'%s has %d of %.2f %x'.format(['a', 3, 1.0, 255]) == 'a has 3 of 1.00 ff' && '%s'.format([[1, 2]]) == '[1, 2]'",
            "'abc 123'.find('[0-9]+') == '123' && '1 2 3'.findAll('[0-9]') == ['1', '2', '3'] && '1 2'.findAll('[0-9]', 1) == ['1']",
            "[1, 2].isSorted() && !self.list.isSorted() && self.list.sum() == 6 && self.list.min() == 1 && self.list.max() == 3",
            "self.list.indexOf(1) == 1 && [1, 2, 1].lastIndexOf(1) == 2 && self.list.sort() == [1, 2, 3] && [1, 1].distinct() == [1]",
            "sets.contains([1, 2], [2]) && sets.equivalent([1, 2], [2, 1, 1]) && !sets.intersects([1], [2])",
            "isURL('https://a.example:80/p?x=1') && !isURL('a.example') && url('https://u@a.example:80/p%20q?x=1&x=2').getHost() == 'a.example:80'",
            "url('https://a.example:80/p?x=1').getHostname() == 'a.example' && url('https://[::1]:80/').getPort() == '80'",
            "url('https://a/b%20c?x=1&y=2').getEscapedPath() == '/b%20c' && url('https://a?x=1').getQuery()['x'] == ['1']",
            "isIP('10.0.0.1') && !isIP('10.0.0.256') && !isIP('010.0.0.1') && ip('::1').isLoopback() && ip('10.0.0.1').family() == 4",
            "ip.isCanonical('::1') && !ip.isCanonical('0::1') && ip('fe80::1').isLinkLocalUnicast() && ip('8.8.8.8').isGlobalUnicast()",
            "cidr('10.0.0.0/8').containsIP('10.1.2.3') && !cidr('10.0.0.0/8').containsIP(ip('11.0.0.1'))",
            "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8') && cidr('::/0').prefixLength() == 0",
            "isQuantity('1Gi') && !isQuantity('1G1') && quantity('1k').isLessThan(quantity('1Ki')) && quantity('1500m').add(quantity('500m')) == quantity('2')",
            "quantity('3').asInteger() == 3 && quantity('-1').sign() == -1 && quantity('2').compareTo(quantity('1')) == 1 && quantity('2').sub(1) == quantity('1')",
            "!format.dns1123Label().validate('my-label').hasValue() && format.dns1123Label().validate('No').hasValue()",
            "format.named('uuid').hasValue() && !format.named('nope').hasValue() && !format.date().validate('2024-02-29').hasValue()",
            "duration('1h30m') == duration('90m') && duration('1.5s').getMilliseconds() == 1500 && duration('1h') > duration('1s')",
            "timestamp('2024-02-29T12:30:00Z').getMonth() == 1 && timestamp('2024-02-29T12:30:00Z').getDayOfYear() == 59",
            "timestamp('2024-01-01T00:00:00Z') + duration('24h') == timestamp('2024-01-02T00:00:00Z') && timestamp('2024-01-01T00:00:00+01:00') < timestamp('2024-01-01T00:00:00Z')",
            "string(duration('90m')) == '5400s' && string(timestamp('2024-01-01T00:00:00.5Z')) == '2024-01-01T00:00:00.5Z'",
            "timestamp('2024-01-01T23:30:00Z').getHours('+01:00') == 0 && strings.quote('a\"') == '\"a\\\\\"\"'",
        ] {
            holds(expression);
        }
    }

    #[test]
    fn faults_are_upstreams() {
        for (expression, expected) in [
            ("1 / 0 == 1", "division by zero"),
            ("1 % 0 == 1", "modulus by zero"),
            ("9223372036854775807 + 1 == 0", "integer overflow"),
            ("self.nope == 1", "no such key: nope"),
            ("[1][5] == 1", "index out of bounds: 5"),
            ("1 + 'a' == 2", "no such overload"),
            ("self.all(x, x)", "no such overload"),
            ("'a'.matches('(') || false", "error parsing regexp: ("),
        ] {
            let outcome = run(expression, &serde_json::json!({"a": 1}));
            assert_eq!(outcome.unwrap_err(), expected, "{expression}");
        }
        for (expression, name) in
            [("nope(1)", "nope"), ("self.nope()", "nope"), ("other == 1", "other"), ("sets.nope([])", "nope")]
        {
            let problem = compile(expression, &["self"]).unwrap_err();
            assert!(
                problem.to_string().contains(&format!("undeclared reference to '{name}' (in container '')")),
                "{problem}"
            );
        }
    }

    #[test]
    fn no_expression_runs_out_of_time_or_memory() {
        let word = serde_json::json!({"s": "twenty characters...", "l": [1]});
        let chained = |step: &str, times: usize| format!("self.l{}.size() > 0", step.repeat(times));
        let long = serde_json::json!({"l": vec![7; 5_000], "s": "x".repeat(100_000)});
        let long_s = "self.s.matches('(x+x+)+y') && self.s.matches('(.*a){20}') || ".repeat(40) + "false";
        for (case, expression, input) in [
            ("strings", format!("[self.s]{}.size() > 0", ".map(v, v + v)".repeat(40)), &word),
            ("lists", format!("[[1]]{}.size() > 0", ".map(v, v + v)".repeat(40)), &word),
            ("bytes", format!("[b'0123456789']{}.size() > 0", ".map(v, v + v)".repeat(40)), &word),
            ("lists in lists, compared", format!("[1]{0} == [1]{0}", ".map(v, [v, v])".repeat(40)), &word),
            (
                "lists in lists, written",
                format!("'%s'.format([1]{}) != ''", ".map(v, [v, v])".repeat(40)),
                &word,
            ),
            (
                "maps in maps, compared",
                format!("[1]{0} == [1]{0}", ".map(v, {'a': v, 'b': v})".repeat(40)),
                &word,
            ),
            ("exponential loops", chained(".map(x, self.l).flatten()", 30), &long),
            (
                "cross products",
                "self.l.all(a, self.l.all(b, self.l.all(c, a + b + c > 0)))".to_owned(),
                &long,
            ),
            (
                "replace",
                format!("'aaaaaaaaaaaaaaaa'{}.size() > 0", ".replace('a', 'aaaaaaaaaaaaaaaa')".repeat(30)),
                &word,
            ),
            (
                "empty replace",
                format!("'a'{}.size() > 0", ".replace('', 'aaaaaaaaaaaaaaaa')".repeat(30)),
                &word,
            ),
            (
                "join",
                format!("[['a','a']]{}.size() > 0", ".map(v, [v.join(',') , v.join(',')])".repeat(40)),
                &word,
            ),
            (
                "format",
                format!("['a']{}.size() > 0", ".map(v, '%s%s%s%s'.format([v, v, v, v]))".repeat(30)),
                &word,
            ),
            ("regular expressions", long_s, &long),
            ("split", "self.l.all(x, self.s.split('').size() > 0)".to_owned(), &long),
            ("sort", "self.l.all(x, self.l.sort().size() > 0)".to_owned(), &long),
        ] {
            let outcome = run(&expression, input);
            assert_eq!(outcome.unwrap_err(), Fault::Exhausted.to_string(), "{case}");
        }
        // Regular expressions that would be large, and nesting that would be deep.
        for expression in [
            "'a'.matches('(a{1000}){1000}{1000}')".to_owned(),
            format!("{}true{}", "(".repeat(5_000), ")".repeat(5_000)),
            format!("{}1", "1 + ".repeat(5_000)),
            format!("self{}", ".a".repeat(5_000)),
            format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000)),
        ] {
            assert!(run(&expression, &word).is_err());
        }
    }

    #[test]
    fn nesting_cannot_hide_behind_quotes() {
        let chains = [
            format!("self{}", ".a".repeat(49_000)),
            format!("1{}", "+1".repeat(49_000)),
            format!("self{}", "[0]".repeat(30_000)),
            format!("1{}", " in 1".repeat(19_000)),
            format!("[{}]", "1,".repeat(49_000)),
            format!("{}1{}", "(".repeat(49_000), ")".repeat(49_000)),
        ];
        // What stands before each chain is a text or a comment with half a pair of quotes.
        for before in ["// '\n", "r'\\' == '' || ", "''' ' ''' == '' || ", "\"\"\" \" \"\"\" == '' || "] {
            for chain in &chains {
                let expression = format!("{before}{chain}");
                let outcome = compile(&expression, &["self"]).map(|_| ());
                assert_eq!(
                    outcome.unwrap_err(),
                    CompileError::TooDeep,
                    "{before}{}",
                    chain.get(..20).unwrap_or_default()
                );
            }
        }
        for harmless in
            ["// it's\nself.a == 1", "r'\\d+' == 'x' || self.b in ['a', 'b']", "''' it's ''' != ''"]
        {
            assert!(compile(harmless, &["self"]).is_ok(), "{harmless}");
        }
        let long = format!("'{}' != ''", "a".repeat(MAX_CODE_POINTS));
        let expected =
            "ERROR: <input>:-1:0: expression code point size exceeds limit: size: 100008, limit 100000";
        assert_eq!(compile(&long, &["self"]).map(|_| ()).unwrap_err().to_string(), expected);
        assert!(compile(&format!("'{}' != ''", "a".repeat(90_000)), &["self"]).is_ok());
    }

    #[test]
    fn harmless_loops_stay_within_the_budget() {
        let items: Vec<_> =
            (0..100).map(|i| serde_json::json!({"name": format!("item-{i}"), "port": i})).collect();
        let input = serde_json::json!({"l": items});
        for expression in [
            "self.l.all(a, self.l.exists_one(b, a.name == b.name))",
            "self.l.map(a, a.port).sum() == 4950",
            "self.l.filter(a, a.name.startsWith('item-9')).size() == 11",
            "self.l.map(a, a.name).join(',').size() > 100",
            "[self.l[0].name].map(v, v + v)[0] == 'item-0item-0'",
        ] {
            match run(expression, &input) {
                Ok(Val::Bool(true)) => {}
                other => panic!("{expression}: {other:?}"),
            }
        }
    }
}
