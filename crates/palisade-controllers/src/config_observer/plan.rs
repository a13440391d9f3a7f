//! Which configuration the API servers should run, and which they do.

use palisade_policy::{
    enforcement::{
        render::{pod_security_configuration, revision},
        state::{Instances, Outputs},
    },
    standards::level::Level,
};
use serde_json::Value;

/// The configuration to write; `None` if the one that is there is right.
#[must_use]
pub fn configuration(outputs: Outputs, current: Option<&Value>) -> Option<Value> {
    let wanted = pod_security_configuration(outputs.default_enforce);
    (current != Some(&wanted)).then_some(wanted)
}

/// How far API servers have come, from the revisions they say they run.
#[must_use]
pub fn instances<'r>(revisions: impl IntoIterator<Item = &'r str>) -> Instances {
    let known = [Level::Privileged, Level::Restricted]
        .map(|level| (revision(&pod_security_configuration(level)), level));
    Instances::of(
        revisions
            .into_iter()
            .map(|reported| known.iter().find(|(revision, _)| revision == reported).map(|(_, level)| *level)),
    )
}

#[cfg(test)]
mod tests {
    use palisade_policy::enforcement::{
        mode::{Release, SpecMode},
        state::{Inputs, decide},
    };

    use super::{Instances, Level, configuration, instances, pod_security_configuration, revision};

    #[test]
    fn writes_only_what_differs() {
        let inputs = Inputs { release: Release::Enforce, gate: true, labels_done: true, ..Inputs::default() };
        let enforcing = configuration(decide(inputs), None).unwrap();
        assert_eq!(enforcing["defaults"]["enforce"], "restricted");
        assert_eq!(configuration(decide(inputs), Some(&enforcing)), None);
        let legacy = decide(Inputs { spec: SpecMode::Legacy, ..inputs });
        assert_eq!(configuration(legacy, Some(&enforcing)).unwrap()["defaults"]["enforce"], "privileged");
    }

    #[test]
    fn an_unknown_revision_is_neither() {
        let revision = |level| revision(&pod_security_configuration(level));
        let (on, off) = (revision(Level::Restricted), revision(Level::Privileged));
        for (reports, expected) in [
            (vec![], Instances::None),
            (vec![on.as_str(), on.as_str()], Instances::All),
            (vec![on.as_str(), off.as_str()], Instances::Mixed),
            (vec![off.as_str()], Instances::None),
            (vec![off.as_str(), "of another kind"], Instances::Mixed),
        ] {
            assert_eq!(instances(reports.iter().copied()), expected, "{reports:?}");
        }
    }
}
