//! Waves by table: what each state becomes, and what a namespace may have in it.

use palisade_model::metadata::StringMap;
use serde_json::{Value, json};

use super::{
    CUSTOM_RESOURCE_DEFINITION, EnforceLabels, GROUP, Instances, KIND, PLURAL, Rejection, Rollout, Spec,
    SpecError, VERSION, WaveFacts, WaveState, WaveStatus, advance, duration, status,
};

const NOW: i64 = 1_000_000;

fn object(more: &Value) -> Value {
    let wave = |name: &str, soak: &str| json!({"name": name, "soak": soak, "namespaceSelector": {"matchLabels": {"tier": name}}});
    let mut object =
        json!({"metadata": {"name": "cluster"}, "spec": {"waves": [wave("dev", "1h"), wave("prod", "0s")]}});
    for (key, value) in more.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    object
}

fn at(seconds: i64) -> String {
    palisade_base::time::rfc3339(seconds)
}

fn wave(name: &str, state: WaveState) -> WaveStatus {
    let (started_at, labelled_at) = match state {
        WaveState::Pending | WaveState::RolledBack => (None, None),
        WaveState::Labelling => (Some(at(NOW - 9000)), None),
        _ => (Some(at(NOW - 9000)), Some(at(NOW - 3599))),
    };
    let ended_at = (state == WaveState::Stopped).then(|| at(NOW - 100));
    WaveStatus { name: name.to_owned(), state, started_at, labelled_at, ended_at, ..WaveStatus::default() }
}

fn rejection(ago: i64) -> Rejection {
    Rejection {
        namespace: "team".to_owned(),
        workload: "Deployment/web".to_owned(),
        message: "violates PodSecurity".to_owned(),
        since: at(NOW - ago),
    }
}

#[test]
fn a_wave_is_labelled_soaks_and_is_done_before_the_next_begins() {
    use WaveState::{Done, Labelling, Pending, RolledBack, Soaking, Stopped};
    let facts = |missing: usize, rejected: &[Rejection]| WaveFacts {
        namespaces: 3,
        missing,
        rejected: rejected.to_vec(),
    };
    let resumed = json!({"resumedAt": at(NOW - 50)});
    for (case, spec, before, dev, later, expected) in [
        ("nothing yet", json!({}), [Pending, Pending], facts(3, &[]), 0, [Labelling, Pending]),
        ("labels are missing", json!({}), [Labelling, Pending], facts(1, &[]), 0, [Labelling, Pending]),
        ("all have them", json!({}), [Labelling, Pending], facts(0, &[]), 0, [Soaking, Pending]),
        ("soaks", json!({}), [Soaking, Pending], facts(0, &[]), 0, [Soaking, Pending]),
        ("soaked, but one is new", json!({}), [Soaking, Pending], facts(1, &[]), 9, [Soaking, Pending]),
        ("soaked", json!({}), [Soaking, Pending], facts(0, &[]), 1, [Done, Labelling]),
        ("done, and the next one", json!({}), [Done, Labelling], facts(0, &[]), 0, [Done, Soaking]),
        ("rejected in it", json!({}), [Soaking, Pending], facts(0, &[rejection(10)]), 9, [Stopped, Pending]),
        (
            "rejected while labels are set",
            json!({}),
            [Labelling, Pending],
            facts(2, &[rejection(10)]),
            0,
            [Stopped, Pending],
        ),
        (
            "rejected before it began",
            json!({}),
            [Soaking, Pending],
            facts(0, &[rejection(9001)]),
            0,
            [Soaking, Pending],
        ),
        (
            "stays stopped, whatever is rejected",
            json!({}),
            [Stopped, Pending],
            facts(0, &[]),
            9,
            [Stopped, Pending],
        ),
        (
            "resumed",
            resumed.clone(),
            [Stopped, Pending],
            facts(0, &[rejection(100)]),
            0,
            [Labelling, Pending],
        ),
        (
            "resumed, the same is no reason",
            resumed.clone(),
            [Labelling, Pending],
            facts(0, &[rejection(100)]),
            0,
            [Soaking, Pending],
        ),
        (
            "resumed, rejected anew",
            resumed,
            [Labelling, Pending],
            facts(0, &[rejection(10)]),
            0,
            [Stopped, Pending],
        ),
        (
            "resumed before it stopped",
            json!({"resumedAt": at(NOW - 200)}),
            [Stopped, Pending],
            facts(0, &[]),
            0,
            [Stopped, Pending],
        ),
        (
            "paused",
            json!({"paused": true}),
            [Soaking, Pending],
            facts(0, &[rejection(10)]),
            9,
            [Soaking, Pending],
        ),
        (
            "paused before the next",
            json!({"paused": true}),
            [Done, Pending],
            facts(0, &[]),
            0,
            [Done, Pending],
        ),
        (
            "all taken back",
            json!({"rollback": "dev"}),
            [Done, Soaking],
            facts(0, &[]),
            0,
            [RolledBack, RolledBack],
        ),
        (
            "the last taken back",
            json!({"rollback": "prod"}),
            [Done, Soaking],
            facts(0, &[]),
            0,
            [Done, RolledBack],
        ),
        (
            "taken back, then again",
            json!({}),
            [RolledBack, RolledBack],
            facts(3, &[]),
            0,
            [Labelling, Pending],
        ),
    ] {
        let spec = Spec::read(&object(&spec)).unwrap();
        let before = [wave("dev", before[0]), wave("prod", before[1])];
        let states: Vec<WaveState> = advance(&spec, &before, &[dev, WaveFacts::default()], true, NOW + later)
            .iter()
            .map(|wave| wave.state)
            .collect();
        assert_eq!(states, expected, "{case}");
        let inactive = advance(&spec, &before, &[], false, NOW);
        assert!(inactive.iter().all(|wave| matches!(wave.state, Pending | RolledBack)), "{case}: opted out");
    }
}

#[test]
fn a_namespace_may_have_what_its_wave_has() {
    use EnforceLabels::{Keep, Remove, Set};
    use WaveState::{Done, Labelling, Pending, RolledBack, Soaking, Stopped};
    let labels = |tier: &str| {
        let mut labels = StringMap::default();
        labels.insert("tier", tier.to_owned());
        labels
    };
    for (case, spec, states, requested, expected) in [
        ("nothing begun", json!({}), [Pending, Pending], false, [Keep, Keep, Keep]),
        ("the first", json!({}), [Labelling, Pending], false, [Set, Keep, Keep]),
        ("it soaks", json!({}), [Soaking, Pending], false, [Set, Keep, Keep]),
        ("it stopped", json!({}), [Stopped, Pending], false, [Keep, Keep, Keep]),
        ("all but the rest", json!({}), [Done, Soaking], false, [Set, Set, Keep]),
        ("the rest", json!({}), [Done, Done], false, [Set, Set, Set]),
        ("paused", json!({"paused": true}), [Done, Soaking], false, [Set, Keep, Keep]),
        ("taken back", json!({"rollback": "prod"}), [Done, RolledBack], false, [Set, Remove, Remove]),
        (
            "taken back while servers enforce",
            json!({"rollback": "prod"}),
            [Done, RolledBack],
            true,
            [Set, Keep, Keep],
        ),
        ("unreadable", json!({"rollback": "nowhere"}), [Done, Done], false, [Keep, Keep, Keep]),
    ] {
        let mut object = object(&spec);
        object["status"] = json!({"waves": [wave("dev", states[0]), wave("prod", states[1])]});
        let rollout = Rollout::read(&object);
        let found = ["dev", "prod", "other"]
            .map(|tier| rollout.enforce_labels(&labels(tier), Instances::None, requested));
        assert_eq!(found, expected, "{case}");
        assert_eq!(rollout.is_done(), expected == [Set, Set, Set], "{case}");
    }
}

#[test]
fn a_spec_with_a_mistake_is_not_followed() {
    let read = |waves: Value| Spec::read(&object(&json!({"waves": waves}))).unwrap_err();
    let selector = json!({"matchLabels": {"a": "b"}});
    assert_eq!(read(json!([{"namespaceSelector": selector}])), SpecError::Name(0));
    let one = json!({"name": "a", "namespaceSelector": selector});
    assert_eq!(read(json!([one, one])), SpecError::Name(1));
    assert_eq!(
        read(json!([{"name": "a", "namespaceSelector": selector, "soak": "soon"}])),
        SpecError::Soak(0, "soon".to_owned())
    );
    for wrong in [
        json!(null),
        json!({"matchExpressions": [{"key": "a", "operator": "Gt"}]}),
        json!({"matchLabels": {"a": 1}}),
    ] {
        assert_eq!(read(json!([{"name": "a", "namespaceSelector": wrong}])), SpecError::Selector(0));
    }
    assert!(matches!(Spec::read(&object(&json!({"resumedAt": "now"}))), Err(SpecError::Resumed(_))));
    let soak = json!({"name": "a", "namespaceSelector": selector, "soak": 86400});
    assert_eq!(read(json!([soak])), SpecError::Soak(0, "86400".to_owned()));
    for (field, value, expected) in [
        ("waves", json!({"name": "a"}), "spec.waves must be a list"),
        ("paused", json!("true"), "spec.paused must be true or false"),
        ("rollback", json!(["dev"]), "spec.rollback must be a string"),
        ("resumedAt", json!(0), "spec.resumedAt must be a string"),
    ] {
        let error = Spec::read(&object(&json!({field: value}))).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    for (text, expected) in [
        ("90s", Some(90)),
        ("1h30m", Some(5400)),
        ("7d", Some(604_800)),
        ("", None),
        ("5", None),
        ("h", None),
        ("1x", None),
        ("99999999999999999d", None),
    ] {
        assert_eq!(duration(text), expected, "{text}");
    }
}

#[test]
fn the_status_names_what_stopped_a_wave() {
    let mut stopped = wave("dev", WaveState::Stopped);
    stopped.rejected = vec![rejection(10)];
    let rollout = Rollout::read(&object(&json!({})));
    let waves = [stopped, wave("prod", WaveState::Pending)];
    let first = status(&rollout, &waves, &json!(null), &json!(2), "2026-01-01T00:00:00Z");
    assert_eq!(first["currentWave"], "dev");
    let message = first["conditions"][1]["message"].as_str().unwrap();
    assert!(message.contains("pods of Deployment/web in namespace team are rejected"), "{message}");
    let again = status(&rollout, &waves, &first, &json!(2), "2027-01-01T00:00:00Z");
    assert_eq!(again, first, "a status that did not change is not written");
}

#[test]
fn the_definition_matches_the_code() {
    let definition: Value = serde_json::from_str(CUSTOM_RESOURCE_DEFINITION).unwrap();
    assert_eq!(definition["metadata"]["name"], format!("{PLURAL}.{GROUP}"));
    assert_eq!(definition["spec"]["names"]["kind"], KIND);
    let version = &definition["spec"]["versions"][0];
    assert_eq!(version["name"], VERSION);
    let schema = &version["schema"]["openAPIV3Schema"]["properties"];
    let states =
        schema["status"]["properties"]["waves"]["items"]["properties"]["state"]["enum"].as_array().unwrap();
    for state in states {
        assert!(serde_json::from_value::<WaveState>(state.clone()).is_ok(), "{state}");
    }
    assert_eq!(states.len(), 6);
    for field in ["waves", "paused", "rollback", "resumedAt"] {
        assert!(schema["spec"]["properties"].get(field).is_some(), "{field}");
    }
}
