//! How checks are written in the Common Expression Language: the values they read, and upstream's sentences as expressions.
//!
//! Every version of a check has its rule beside it in `checks`, made of the same lists. The rule is an expression of a
//! text: what is forbidden in upstream's words, or the empty text. Variables are evaluated only where they are used, and once.
//!
//! Implements: Common Expression Language in Kubernetes. <https://kubernetes.io/docs/reference/using-api/cel/>

use super::evaluator::Options;

/// The first release whose expressions have `distinct`, `flatten` and `sort`: an API server accepts a function one release
/// after the one that introduces it (v1.34), so that a rollback can still read the policy.
const LIST_FUNCTIONS_SINCE: u16 = 35;

/// The containers of all three lists, in upstream's order.
pub(crate) const CONTAINERS: &str = "variables.containers";
/// The pod's security context, an empty map without one.
pub(crate) const POD_CONTEXT: &str = "variables.podContext";

/// What every rule may name, in the order of their definitions; `variables.pod` comes from the policy.
const BASE: &[(&str, &str)] = &[
    ("spec", "variables.pod.?spec.orValue({})"),
    ("podContext", "variables.spec.?securityContext.orValue({})"),
    (
        "containers",
        "variables.spec.?initContainers.orValue([]) + variables.spec.?containers.orValue([]) + \
         variables.spec.?ephemeralContainers.orValue([])",
    ),
    ("volumes", "variables.spec.?volumes.orValue([])"),
    ("annotations", "variables.pod.?metadata.?annotations.orValue({})"),
    ("isWindows", "variables.spec.?os.?name.orValue('') == 'windows'"),
    ("hasUserNamespace", "!variables.spec.?hostUsers.orValue(true)"),
];

/// The variables of a policy while its rules are written.
#[derive(Debug)]
pub(crate) struct CelRules {
    options: Options,
    variables: Vec<(String, String)>,
}

impl CelRules {
    /// `pod` is the expression of the pod or template.
    pub(crate) fn new(options: Options, pod: &str) -> Self {
        let mut variables = vec![("pod".to_owned(), pod.to_owned())];
        variables.extend(BASE.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        Self { options, variables }
    }

    /// What the checks may need besides the pod.
    pub(crate) const fn options(&self) -> Options {
        self.options
    }

    /// Defines a variable, and returns the expression that names it. One that has the same value already is taken instead; one
    /// that has the same name and another value gets a number.
    pub(crate) fn define(&mut self, name: &str, value: String) -> String {
        if let Some((known, _)) = self.variables.iter().find(|(_, known)| *known == value) {
            return format!("variables.{known}");
        }
        let mut unique = name.to_owned();
        let mut number = 2;
        while self.variables.iter().any(|(known, _)| *known == unique) {
            unique = format!("{name}_{number}");
            number += 1;
        }
        let reference = format!("variables.{unique}");
        self.variables.push((unique, value));
        reference
    }

    /// The names of the containers for which a condition about `c` holds.
    pub(crate) fn names_where(&mut self, variable: &str, condition: &str) -> String {
        self.define(variable, format!("{CONTAINERS}.map(c, {condition}, c.name)"))
    }

    /// The values of a list, each once and in order, as far as the release has functions for that.
    pub(crate) fn sorted_unique(&self, list: &str) -> String {
        if self.options.newest >= LIST_FUNCTIONS_SINCE {
            format!("({list}).distinct().sort()")
        } else {
            format!("({list})")
        }
    }

    /// The texts of a list of lists as one list. Releases without `flatten` get one text for each inner list, with a separator
    /// between its elements.
    pub(crate) fn flat(&self, lists: &str, separator: &str) -> String {
        if self.options.newest >= LIST_FUNCTIONS_SINCE {
            self.sorted_unique(&format!("{lists}.flatten()"))
        } else {
            format!("({lists}).map(l, l.join({}))", text(separator))
        }
    }

    /// All variables, in the order of their definitions.
    pub(crate) fn into_variables(self) -> Vec<(String, String)> {
        self.variables
    }
}

/// A text as a literal.
pub(crate) fn text(text: &str) -> String {
    let mut literal = String::from("'");
    for c in text.chars() {
        match c {
            '\\' | '\'' => literal.extend(['\\', c]),
            '\n' => literal.push_str("\\n"),
            '\r' => literal.push_str("\\r"),
            c => literal.push(c),
        }
    }
    literal.push('\'');
    literal
}

/// A list of texts as a literal.
pub(crate) fn list(texts: &[&str]) -> String {
    let literals: Vec<String> = texts.iter().map(|item| text(item)).collect();
    format!("[{}]", literals.join(", "))
}

/// The violation `reason (detail)` where a condition holds; `detail` is an expression.
pub(crate) fn violation(condition: &str, reason: &str, detail: &str) -> String {
    violation_or(condition, reason, detail, "''")
}

/// The violation where a condition holds, and another rule where it does not.
pub(crate) fn violation_or(condition: &str, reason: &str, detail: &str, otherwise: &str) -> String {
    format!("{condition} ? {} + {detail} + ')' : {otherwise}", text(&format!("{reason} (")))
}

/// Whether a list has elements.
pub(crate) fn some(list: &str) -> String {
    format!("size({list}) > 0")
}

/// One text for exactly one element, another for everything else.
pub(crate) fn plural(one: &str, many: &str, list: &str) -> String {
    format!("(size({list}) == 1 ? {} : {})", text(one), text(many))
}

/// What separates the texts of [`quoted`].
pub(crate) const BETWEEN_QUOTED: &str = "\", \"";

/// The texts of a list in double quotes.
pub(crate) fn quoted(list: &str) -> String {
    format!("'\"' + {list}.join('\", \"') + '\"'")
}

/// `container "a"` or `containers "a", "b"`.
pub(crate) fn containers(names: &str) -> String {
    format!("{} + {}", plural("container ", "containers ", names), quoted(names))
}

/// `pod`, `container "a"`, or `pod and container "a"`.
pub(crate) fn setters(pod: &str, names: &str) -> String {
    format!(
        "(({pod} ? 'pod' : '') + ({pod} && size({names}) > 0 ? ' and ' : '') + (size({names}) > 0 ? {} : ''))",
        containers(names)
    )
}

/// A rule that does not apply to pods for which a condition holds.
pub(crate) fn unless(condition: &str, rule: &str) -> String {
    format!("{condition} ? '' : ({rule})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_literals_that_read_as_the_text() {
        for (given, expected) in
            [("a", "'a'"), ("it's", r"'it\'s'"), (r"a\b", r"'a\\b'"), ("\"", "'\"'"), ("a\nb", r"'a\nb'")]
        {
            assert_eq!(text(given), expected, "{given:?}");
        }
        assert_eq!(list(&["", "a"]), "['', 'a']");
    }

    #[test]
    fn a_variable_has_one_value() {
        let mut rules = CelRules::new(Options::default(), "object");
        assert_eq!(rules.define("a", "1".to_owned()), "variables.a");
        assert_eq!(rules.define("b", "1".to_owned()), "variables.a");
        assert_eq!(rules.define("a", "2".to_owned()), "variables.a_2");
        assert_eq!(rules.define("a", "3".to_owned()), "variables.a_3");
    }
}
