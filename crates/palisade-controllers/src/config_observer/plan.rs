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

/// What the configuration requests: `privileged` where there is none, or none that can be read.
#[must_use]
pub fn requested(current: Option<&Configuration>) -> Level {
    current.and_then(Configuration::enforce).unwrap_or(Level::Privileged)
}

/// How far instances have come, from the reports of those that are alive. One that has not come to the current configuration
/// yet may be about to enforce anything.
#[must_use]
pub fn instances<'r>(
    reports: impl IntoIterator<Item = &'r Report>,
    current: Option<&Configuration>,
) -> Instances {
    Instances::of(reports.into_iter().map(|report| report.settled(current)))
}

/// The instances that the rollout waits for, in a sentence of bounded length: on the way in those that do not enforce yet,
/// on the way out those that may still do. `None` if there are none.
#[must_use]
pub fn waiting_for<'r>(
    reports: impl IntoIterator<Item = &'r Report>,
    current: Option<&Configuration>,
) -> Option<String> {
    const MOST: usize = 3;
    let enforces = requested(current) == Level::Restricted;
    let (mut known, mut named) = (0_usize, Vec::new());
    for report in reports {
        known += 1;
        let does = report.settled(current);
        if does.is_none() || enforces != (does == Some(Level::Restricted)) {
            named.push(report.describe(current));
        }
    }
    if known == 0 && enforces {
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
        instances::{WEBHOOK, instance_lease, read_report},
        mode::{Release, SpecMode},
        state::{Inputs, decide},
    };
    use proptest::prelude::*;

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
    fn on_the_way_out_only_those_are_waited_for_that_may_still_enforce() {
        let current = at(Level::Privileged, 2);
        let reports = [report(Level::Baseline, None), report(Level::Privileged, Some(2))];
        assert_eq!(waiting_for(&reports, Some(&current)), None);
        assert_eq!(waiting_for([], Some(&current)), None);
        let behind = report(Level::Privileged, Some(1));
        let named = waiting_for([&behind], Some(&current));
        assert_eq!(named.as_deref(), Some("webhook x has not applied the current configuration"));
    }

    fn at(level: Level, version: usize) -> Configuration {
        Configuration { version: Some(version.to_string()), ..Configuration::of(level) }
    }

    fn report(level: Level, observed: Option<usize>) -> Report {
        let observed = observed.map(|version| if version == 0 { String::new() } else { version.to_string() });
        let running = Configuration { version: observed, ..Configuration::of(level) };
        read_report(&instance_lease(WEBHOOK, "x", &running, "")).unwrap()
    }

    fn level() -> impl Strategy<Value = Level> {
        prop_oneof![Just(Level::Privileged), Just(Level::Restricted)]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Every instance applies what was written one after another, each at its own pace. What is reported of them together
        /// is true now, and stays true as long as nothing else is written.
        #[test]
        fn reports_of_instances_hold_whatever_is_on_its_way_to_them(
            written in prop::collection::vec(level(), 0..6),
            paces in prop::collection::vec(0..6_usize, 0..4),
            seen_from in 0..6_usize,
        ) {
            // An observer may have begun late, and then has seen the last one at least.
            let seen_from = seen_from.min(written.len().saturating_sub(1));
            let current = written.iter().enumerate().skip(seen_from).fold(None, |known, (index, &level)| {
                Some(at(level, index + 1).after(known))
            });
            let paces: Vec<usize> = paces.into_iter().map(|pace| pace.min(written.len())).collect();
            let now = |pace: usize| pace.checked_sub(1).map_or(Level::Privileged, |last| written[last]);
            let reports: Vec<Report> = paces.iter().map(|&pace| report(now(pace), Some(pace))).collect();
            let ahead = |pace: usize| std::iter::once(now(pace)).chain(written[pace..].iter().copied());
            match instances(&reports, current.as_ref()) {
                Instances::None => {
                    prop_assert!(paces.iter().all(|&pace| ahead(pace).all(|level| level != Level::Restricted)));
                }
                Instances::All => {
                    prop_assert!(paces.iter().all(|&pace| ahead(pace).all(|level| level == Level::Restricted)));
                }
                Instances::Mixed => {}
            }
            // And once all have come to the end, the report is complete.
            let done: Vec<Report> = paces.iter().map(|_| report(now(written.len()), Some(written.len()))).collect();
            let expected = match now(written.len()) {
                Level::Restricted if !paces.is_empty() => Instances::All,
                _ => Instances::None,
            };
            prop_assert_eq!(instances(&done, current.as_ref()), expected);
        }
    }

    #[test]
    fn missing_or_broken_configuration_means_privileged() {
        assert_eq!(requested(None), Level::Privileged);
        let broken = Configuration::new(serde_json::json!({"defaults": 7}));
        assert_eq!(requested(Some(&broken)), Level::Privileged);
        assert_eq!(requested(Some(&Configuration::of(Level::Restricted))), Level::Restricted);
    }
}
