//! Label selectors: which labels an object must have.
//!
//! Implements: `labels.Selector` of `k8s.io/apimachinery/pkg/labels` and `metav1.LabelSelector` objects. The grammar of
//! `?labelSelector=` is apimachinery's, because its messages include those about names.

use std::fmt;

use serde_json::Value;

/// A label selector: every requirement must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// The requirements, in the order they are printed.
    pub requirements: Vec<Requirement>,
}

/// One requirement on one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// How its value is compared.
    pub operator: Operator,
    /// What it is compared with.
    pub values: Vec<String>,
}

/// How a label is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are upstream's own")]
pub enum Operator {
    In,
    NotIn,
    Equals,
    NotEquals,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

impl Operator {
    /// The operator of that name in a `metav1.LabelSelector`.
    #[must_use]
    pub fn of_labels(name: &str) -> Option<Self> {
        Some(match name {
            "In" => Self::In,
            "NotIn" => Self::NotIn,
            "Exists" => Self::Exists,
            "DoesNotExist" => Self::DoesNotExist,
            _ => return None,
        })
    }

    /// The operator of that name in a node selector, which has two more.
    #[must_use]
    pub fn of_nodes(name: &str) -> Option<Self> {
        match name {
            "Gt" => Some(Self::GreaterThan),
            "Lt" => Some(Self::LessThan),
            name => Self::of_labels(name),
        }
    }

    /// Whether a label with this value, or without one, meets the requirement.
    #[must_use]
    pub fn holds<'v>(self, mut values: impl Iterator<Item = &'v str>, found: Option<&str>) -> bool {
        match (self, found) {
            (Self::In | Self::Equals, Some(found)) => values.any(|value| value == found),
            (Self::NotIn | Self::NotEquals, Some(found)) => !values.any(|value| value == found),
            (Self::Exists, found) => found.is_some(),
            (Self::DoesNotExist, found) => found.is_none(),
            (Self::NotIn | Self::NotEquals, None) => true,
            (Self::GreaterThan | Self::LessThan, Some(found)) => {
                let number = |text: &str| text.parse::<i64>().ok();
                let (found, bound) = (number(found), values.next().and_then(number));
                found.zip(bound).is_some_and(|(found, bound)| match self {
                    Self::GreaterThan => found > bound,
                    _ => found < bound,
                })
            }
            (Self::In | Self::Equals | Self::GreaterThan | Self::LessThan, None) => false,
        }
    }
}

impl LabelSelector {
    /// Reads a `metav1.LabelSelector`.
    #[must_use]
    pub fn from_object(object: &Value) -> Self {
        let mut requirements = equal(object.get("matchLabels"), Operator::In);
        for expression in object.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let text = |key: &str| expression.get(key).and_then(Value::as_str).unwrap_or_default();
            let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
            requirements.push(Requirement {
                key: text("key").to_owned(),
                // Validation has rejected every other name.
                operator: Operator::of_labels(text("operator")).unwrap_or(Operator::DoesNotExist),
                values: values.filter_map(Value::as_str).map(str::to_owned).collect(),
            });
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements }
    }

    /// A selector for exactly these labels.
    #[must_use]
    pub fn from_labels(labels: &Value) -> Self {
        Self { requirements: equal(Some(labels), Operator::Equals) }
    }

    /// Whether it selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether an object's labels fit.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        self.requirements.is_empty() || self.matches_labels(object.pointer("/metadata/labels"))
    }

    /// Whether labels fit.
    #[must_use]
    pub fn matches_labels(&self, labels: Option<&Value>) -> bool {
        self.matches_with(|key| labels.and_then(|l| l.get(key)).and_then(Value::as_str))
    }

    /// Whether labels fit that are kept in another form.
    pub fn matches_with<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| {
            let values = requirement.values.iter().map(String::as_str);
            requirement.operator.holds(values, label(&requirement.key))
        })
    }
}

fn equal(labels: Option<&Value>, operator: Operator) -> Vec<Requirement> {
    let labels = labels.and_then(Value::as_object).into_iter().flatten();
    let requirement = |(key, value): (&String, &Value)| Requirement {
        key: key.clone(),
        operator,
        values: vec![value.as_str().unwrap_or_default().to_owned()],
    };
    labels.map(requirement).collect()
}

impl fmt::Display for LabelSelector {
    /// The form kubectl prints: `a=b,c in (d,e),!f`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, r) in self.requirements.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            let mut values = r.values.clone();
            values.sort();
            let list = values.join(",");
            let key = &r.key;
            match r.operator {
                Operator::Equals => write!(f, "{key}={list}")?,
                Operator::NotEquals => write!(f, "{key}!={list}")?,
                Operator::In if values.len() == 1 => write!(f, "{key}={list}")?,
                Operator::In => write!(f, "{key} in ({list})")?,
                Operator::NotIn => write!(f, "{key} notin ({list})")?,
                Operator::Exists => f.write_str(key)?,
                Operator::DoesNotExist => write!(f, "!{key}")?,
                Operator::GreaterThan => write!(f, "{key}>{list}")?,
                Operator::LessThan => write!(f, "{key}<{list}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selects_by_expressions() {
        let labels = json!({"a": "1"});
        for (operator, values, on_a, on_other) in [
            ("In", json!(["1", "2"]), true, false),
            ("In", json!(["2"]), false, false),
            ("NotIn", json!(["1"]), false, true),
            ("NotIn", json!(["2"]), true, true),
            ("Exists", json!([]), true, false),
            ("DoesNotExist", json!([]), false, true),
        ] {
            let matches = |key: &str| {
                let expression = json!([{"key": key, "operator": operator, "values": values}]);
                let selector = json!({"matchExpressions": expression});
                LabelSelector::from_object(&selector).matches_labels(Some(&labels))
            };
            assert_eq!((matches("a"), matches("other")), (on_a, on_other), "{operator} {values}");
        }
    }

    #[test]
    fn node_selectors_compare_numbers() {
        for (name, found, expected) in [
            ("Gt", Some("5"), true),
            ("Gt", Some("4"), false),
            ("Lt", Some("3"), true),
            ("Lt", Some("x"), false),
            ("Lt", None, false),
        ] {
            let operator = Operator::of_nodes(name).unwrap();
            assert_eq!(operator.holds(["4"].into_iter(), found), expected, "{name} {found:?}");
        }
        assert_eq!(Operator::of_labels("Gt"), None);
    }

    #[test]
    fn prints_like_kubectl() {
        let selector = LabelSelector::from_object(
            &json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "In", "values": ["e", "d"]}]}),
        );
        assert_eq!(selector.to_string(), "a=b,c in (d,e)");
    }
}
