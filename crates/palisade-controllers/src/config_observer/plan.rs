//! Which configuration the API servers should run, and which they do.

use palisade_policy::{
    enforcement::{
        instances::{Configuration, Report},
        state::{Instances, Outputs},
    },
    standards::level::Level,
};

/// The configuration to write; `None` if the one that is there is right.
#[must_use]
pub fn configuration(outputs: Outputs, current: Option<&Configuration>) -> Option<Configuration> {
    let wanted = Configuration::of(outputs.default_enforce);
    (current.map(|current| &current.revision) != Some(&wanted.revision)).then_some(wanted)
}

/// What the configuration asks for: `privileged` where there is none, or none that can be read.
#[must_use]
pub fn requested(current: Option<&Configuration>) -> Level {
    current.and_then(Configuration::enforce).unwrap_or(Level::Privileged)
}

/// How far instances have come, from what those say that are alive. One that has not come to the current configuration
/// yet may be about to enforce anything.
#[must_use]
pub fn instances<'r>(
    reports: impl IntoIterator<Item = &'r Report>,
    current: Option<&Configuration>,
) -> Instances {
    Instances::of(reports.into_iter().map(|report| report.settled(current)))
}

/// The instances that do not do yet what the configuration asks for, in a sentence of bounded length; `None` if all do.
#[must_use]
pub fn waiting_for<'r>(
    reports: impl IntoIterator<Item = &'r Report>,
    current: Option<&Configuration>,
) -> Option<String> {
    const MOST: usize = 3;
    let (wanted, mut any) = (requested(current), false);
    let mut named: Vec<String> = Vec::new();
    for report in reports {
        any = true;
        if report.settled(current) != Some(wanted) {
            named.push(report.describe(current));
        }
    }
    if !any {
        return Some("nothing that enforces has reported yet".to_owned());
    }
    let more = named.len().saturating_sub(MOST);
    named.truncate(MOST);
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    (!named.is_empty()).then(|| named.join(", "))
}

#[cfg(test)]
mod tests {
    use palisade_policy::enforcement::{
        mode::{Release, SpecMode},
        state::{Inputs, decide},
    };

    use super::{Configuration, Instances, Level, Report, configuration, instances, requested, waiting_for};

    #[test]
    fn writes_only_what_differs() {
        let inputs = Inputs { release: Release::Enforce, gate: true, labels_done: true, ..Inputs::default() };
        let enforcing = configuration(decide(inputs), None).unwrap();
        assert_eq!(enforcing.enforce(), Some(Level::Restricted));
        assert_eq!(configuration(decide(inputs), Some(&enforcing)), None);
        let legacy = decide(Inputs { spec: SpecMode::Legacy, ..inputs });
        let back = configuration(legacy, Some(&enforcing)).unwrap();
        assert_eq!(back.enforce(), Some(Level::Privileged));
    }

    #[test]
    fn an_instance_counts_with_what_it_has_come_to() {
        let current = Configuration { version: Some("2".to_owned()), ..Configuration::of(Level::Restricted) };
        let report = |level: Option<Level>, observed: Option<&str>| Report {
            name: "pod-security-webhook-x".to_owned(),
            component: "webhook".to_owned(),
            revision: String::new(),
            enforce: level,
            observed: observed.map(str::to_owned),
            renewed: String::new(),
            lasts: 60,
        };
        let (on, off) = (Some(Level::Restricted), Some(Level::Privileged));
        for (reports, expected) in [
            (vec![], Instances::None),
            (vec![report(on, Some("2")), report(on, None)], Instances::All),
            (vec![report(on, Some("2")), report(off, Some("2"))], Instances::Mixed),
            (vec![report(off, Some("2"))], Instances::None),
            (vec![report(off, Some("1"))], Instances::Mixed),
            (vec![report(off, None), report(None, None)], Instances::Mixed),
        ] {
            assert_eq!(instances(&reports, Some(&current)), expected, "{reports:?}");
        }
        assert_eq!(
            waiting_for([], Some(&current)).as_deref(),
            Some("nothing that enforces has reported yet")
        );
        assert_eq!(waiting_for(&[report(on, Some("2")), report(on, None)], Some(&current)), None);
        let many = [
            report(off, Some("2")),
            report(off, None),
            report(on, Some("1")),
            report(None, None),
            report(off, None),
        ];
        assert_eq!(
            waiting_for(&many, Some(&current)).as_deref(),
            Some(
                "webhook x enforces privileged, webhook x enforces privileged, by a configuration of its own, \
                 webhook x has not applied the current configuration, and 2 more"
            )
        );
    }

    #[test]
    fn nothing_asks_for_nothing() {
        assert_eq!(requested(None), Level::Privileged);
        let broken = Configuration::new(serde_json::json!({"defaults": 7}));
        assert_eq!(requested(Some(&broken)), Level::Privileged);
        assert_eq!(requested(Some(&Configuration::of(Level::Restricted))), Level::Restricted);
    }
}
