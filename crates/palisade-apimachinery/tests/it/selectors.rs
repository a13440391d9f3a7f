//! Label and field selectors by example.
//!
//! Implements: "Labels and Selectors", <https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/>, and
//! "Field Selectors", <https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/>.

use palisade_apimachinery::scheme::LATEST;
use palisade_apimachinery::selector::FieldSelector;
use palisade_apimachinery::selector::parse_labels;
use palisade_base::label_selector::LabelSelector;
use serde_json::json;

#[test]
fn requirements_hold_for_labels() {
    let object = json!({"metadata": {"labels": {"env": "prod", "tier": "web", "n": "10", "empty": "", "x.io/y": "z"}}});
    for (case, text, expected) in [
        ("everything", "", true),
        ("equal", "env=prod", true),
        ("equal, twice", "env==prod", true),
        ("another value", "env=test", false),
        ("no such label", "nope=prod", false),
        ("not equal", "env!=prod", false),
        ("not equal, where there is no label", "nope!=prod", true),
        ("one of", "env in (test, prod)", true),
        ("none of", "env notin (test, prod)", false),
        ("none of, where there is no label", "nope notin (a)", true),
        ("exists", "tier", true),
        ("does not exist", "!tier", false),
        ("exists, with a space", "! nope", true),
        ("all of several", "env=prod,tier in (web),!nope", true),
        ("one of several fails", "env=prod,tier in (db)", false),
        ("a prefix", "x.io/y=z", true),
        ("greater", "n>9", true),
        ("not greater", "n>10", false),
        ("less", "n<11", true),
        ("numbers, not texts", "n>9,n<100", true),
        ("no number", "env>1", false),
        ("an empty value", "empty=", true),
        ("an empty value, in a list", "empty in ()", true),
        ("spaces do not count", "  env = prod , tier  in ( web )  ", true),
        ("a keyword as a value", "env notin (in,notin)", true),
    ] {
        let selector = parse_labels(text).unwrap_or_else(|status| panic!("{case}: {}", status.message));
        assert_eq!(selector.matches(&object), expected, "{case}: {text}");
    }
}

#[test]
fn selectors_that_cannot_be_read_are_rejected() {
    let key = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
               alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
               '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    for (text, expected) in [
        ("a in b", "unable to parse requirement: found 'b' expected: '('".to_owned()),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'".to_owned()),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt".to_owned()),
        ("!a=b", "found '=', expected: ',' or 'end of string'".to_owned()),
        ("a=b c", "found 'c', expected: ',' or 'end of string'".to_owned()),
        ("a,,b", "found ',', expected: identifier after ','".to_owned()),
        ("a=b,", "found '', expected: identifier after ','".to_owned()),
        ("=a", "found '=', expected: !, identifier, or 'end of string'".to_owned()),
        ("-a=b", format!("unable to parse requirement: <nil>: Invalid value: \"-a\": {key}")),
        ("a>b", "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must be an integer".to_owned()),
    ] {
        let status = parse_labels(text).map(|_| ()).unwrap_err();
        assert_eq!((status.code, status.message.as_str()), (400, expected.as_str()), "{text}");
    }
}

#[test]
fn label_selectors_of_objects_are_read_as_requirements() {
    let labels = json!({"a": "1", "b": "2"});
    for (case, object, text, expected) in [
        ("nothing", json!({}), "", true),
        ("labels", json!({"matchLabels": {"a": "1", "b": "2"}}), "a=1,b=2", true),
        (
            "labels and expressions",
            json!({"matchLabels": {"a": "1"}, "matchExpressions": [
            {"key": "b", "operator": "NotIn", "values": ["3"]}]}),
            "a=1,b notin (3)",
            true,
        ),
        ("exists", json!({"matchExpressions": [{"key": "b", "operator": "Exists"}]}), "b", true),
        (
            "does not exist",
            json!({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}),
            "!b",
            false,
        ),
        (
            "values are sorted",
            json!({"matchExpressions": [
            {"key": "a", "operator": "In", "values": ["2", "1"]}]}),
            "a in (1,2)",
            true,
        ),
    ] {
        let selector = LabelSelector::from_object(&object);
        assert_eq!(selector.to_string(), text, "{case}");
        assert_eq!(selector.matches_labels(Some(&labels)), expected, "{case}");
    }
}

#[test]
fn fields_are_selected_by_equality() {
    let kind = LATEST.by_kind("", "v1", "Pod").unwrap();
    let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"nodeName": "node", "restartPolicy": "Always"},
                     "status": {"phase": "Running"}});
    for (case, text, expected) in [
        ("everything", "", true),
        ("name", "metadata.name=p", true),
        ("two equal signs", "metadata.name==p", true),
        ("another name", "metadata.name=q", false),
        ("not equal", "metadata.name!=q", true),
        ("all of several", "metadata.namespace=n,spec.nodeName=node", true),
        ("one of several fails", "metadata.namespace=n,status.phase!=Running", false),
        ("a field that is not set", "spec.schedulerName=", true),
        ("escaped", r"metadata.name=p\,q", false),
    ] {
        let selector =
            FieldSelector::parse(kind, text).unwrap_or_else(|status| panic!("{case}: {}", status.message));
        assert_eq!(selector.matches(kind, &pod), expected, "{case}: {text}");
    }
    for (text, expected) in [
        ("spec.image=i", "field label not supported: spec.image"),
        ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
    ] {
        let status = FieldSelector::parse(kind, text).map(|_| ()).unwrap_err();
        assert!(status.message.contains(expected), "{text}: {}", status.message);
    }
}
