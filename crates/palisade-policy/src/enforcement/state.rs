//! The state machine of the rollout: from what is known to what should be, in one function.
//!
//! Implements: `PSAEnforcementConfig`, with the contradictions of the design resolved: labels come before the global
//! configuration when enforcement begins, and go after it when enforcement ends, so that at no time a namespace is
//! held to a stricter level than its service accounts need. The design's table leaves that order open where the
//! feature gate alone decides; here it holds everywhere.

use super::mode::{Release, SpecMode, StatusMode};
use crate::standards::level::Level;

/// What evaluating all namespaces has shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Evaluation {
    /// Nothing yet.
    #[default]
    NotEvaluated,
    /// No namespace is known to violate, but not everything could be judged.
    Undecided,
    /// No namespace would violate.
    Clean,
    /// Some namespace would.
    Violations,
}

/// How many of the API servers enforce `restricted` by default, by the revision each of them runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Instances {
    /// None; also if none is known.
    #[default]
    None,
    /// Some, or some do not report.
    Mixed,
    /// All.
    All,
}

impl Instances {
    /// From what each instance reports to enforce by default.
    #[must_use]
    pub fn of(reports: impl IntoIterator<Item = Option<Level>>) -> Self {
        let (mut enforcing, mut other, mut silent) = (false, false, false);
        for report in reports {
            match report {
                Some(Level::Restricted) => enforcing = true,
                Some(_) => other = true,
                None => silent = true,
            }
        }
        match (enforcing, other, silent) {
            (true, false, false) => Self::All,
            (false, _, false) => Self::None,
            // One that does not report what it runs may enforce, and may not.
            _ => Self::Mixed,
        }
    }
}

/// All that the rollout depends on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Inputs {
    /// The release.
    pub release: Release,
    /// The feature gate `OpenShiftPodSecurityAdmission`.
    pub gate: bool,
    /// `spec.enforcementMode`; [`SpecMode::Unset`] without an object.
    pub spec: SpecMode,
    /// `status.enforcementMode` so far.
    pub status: StatusMode,
    /// What evaluation has shown.
    pub evaluation: Evaluation,
    /// Whether every namespace that can have an enforce label has one, see [`super::labels::are_done`].
    pub labels_done: bool,
    /// What the API servers do.
    pub instances: Instances,
    /// Whether the global configuration requested `restricted` so far.
    pub restricted_requested: bool,
    /// Whether the administrator takes waves back, see [`super::waves`].
    pub rollback: bool,
}

/// What to do with the enforce labels that are the syncer's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EnforceLabels {
    /// Set them, and keep them right.
    Set,
    /// Set them where there are none; those that are there are only ever made less strict.
    Loosen,
    /// Leave those that are there: some API server still enforces `restricted` where there is none.
    Keep,
    /// Remove them.
    Remove,
}

/// What should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Outputs {
    /// What to write into `spec.enforcementMode`, if anything.
    pub spec_write: Option<SpecMode>,
    /// `status.enforcementMode`; `None` where nothing writes it.
    pub status: Option<StatusMode>,
    /// What to do with enforce labels.
    pub enforce_labels: EnforceLabels,
    /// The level that the global configuration has the API servers enforce by default.
    pub default_enforce: Level,
}

/// Decides.
#[must_use]
pub fn decide(inputs: Inputs) -> Outputs {
    let release = inputs.release;
    let is_enforcing = match release {
        // Before the API is used, the gate alone decides.
        Release::Introduce | Release::Evaluate => inputs.gate,
        Release::Enforce => inputs.gate && inputs.spec != SpecMode::Legacy,
    };
    let (enforce_labels, default_enforce) = if is_enforcing { forward(inputs) } else { back(inputs) };
    let found = inputs.evaluation == Evaluation::Violations;
    // An explicit `Restricted` stays; only a missing mode is treated with care.
    let careful = release == Release::Evaluate && found && inputs.spec == SpecMode::Unset;
    Outputs {
        spec_write: careful.then_some(SpecMode::Legacy),
        status: status(release, is_enforcing, inputs),
        enforce_labels,
        default_enforce,
    }
}

/// Labels first, then the global configuration. Once begun, a namespace that is still without a label stops nothing.
fn forward(inputs: Inputs) -> (EnforceLabels, Level) {
    let begun = inputs.restricted_requested || inputs.instances != Instances::None;
    let goes_on = !inputs.rollback && (inputs.labels_done || begun);
    let level = if goes_on { Level::Restricted } else { Level::Privileged };
    (EnforceLabels::Set, level)
}

/// The global configuration first, then labels: a namespace must not fall back to a default that is still strict.
fn back(inputs: Inputs) -> (EnforceLabels, Level) {
    let labels = match inputs.instances {
        Instances::None if !inputs.restricted_requested => EnforceLabels::Remove,
        // What still requests `restricted` may be on its way to an instance.
        Instances::None | Instances::Mixed | Instances::All => EnforceLabels::Keep,
    };
    (labels, Level::Privileged)
}

fn status(release: Release, is_enforcing: bool, inputs: Inputs) -> Option<StatusMode> {
    match release {
        Release::Introduce => None,
        Release::Evaluate => Some(StatusMode::NotEnabled),
        Release::Enforce if inputs.spec == SpecMode::Legacy => Some(StatusMode::Legacy),
        Release::Enforce if !is_enforcing => Some(StatusMode::NotEnabled),
        Release::Enforce => {
            // Restricted needs the labels once; a namespace that is new afterwards does not take it back.
            let labelled = inputs.labels_done || inputs.status == StatusMode::Restricted;
            let all = inputs.instances == Instances::All && !inputs.rollback;
            Some(if labelled && all { StatusMode::Restricted } else { StatusMode::Progressing })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{
        EnforceLabels::{self, Keep, Remove, Set},
        Evaluation::{self, Clean, NotEvaluated, Undecided, Violations},
        Inputs, Instances, Outputs, decide,
    };
    use crate::{
        enforcement::mode::{
            Release,
            SpecMode::{self, Legacy, Restricted, Unset},
            StatusMode,
        },
        standards::level::Level,
    };

    const ANY_SPEC: &[SpecMode] = &[Unset, Restricted, Legacy];
    const WILLING: &[SpecMode] = &[Unset, Restricted];
    const ANY_EVALUATION: &[Evaluation] = &[Clean, Violations, NotEvaluated, Undecided];
    const ANY_LABELS: &[bool] = &[true, false];
    const ANY_INSTANCES: &[Instances] = &[Instances::None, Instances::Mixed, Instances::All];
    const SETTLED: &[Instances] = &[Instances::None];
    const ENFORCING: &[Instances] = &[Instances::Mixed, Instances::All];

    /// A row of the table: number, release, gate, specs, evaluations, labels done, instances; then what comes out.
    type Row = (
        &'static str,
        Release,
        bool,
        &'static [SpecMode],
        &'static [Evaluation],
        &'static [bool],
        &'static [Instances],
        Option<SpecMode>,
        Option<StatusMode>,
        EnforceLabels,
        Level,
    );

    #[test]
    fn every_row_of_the_state_table() {
        use Release::{Enforce, Evaluate, Introduce};
        let (privileged, restricted) = (Level::Privileged, Level::Restricted);
        let off = Some(StatusMode::NotEnabled);
        let progressing = Some(StatusMode::Progressing);
        let legacy = Some(StatusMode::Legacy);
        #[rustfmt::skip]
        let rows: &[Row] = &[
            ("1", Introduce, false, ANY_SPEC, ANY_EVALUATION, ANY_LABELS, SETTLED, None, None, Remove, privileged),
            ("2", Introduce, true, ANY_SPEC, ANY_EVALUATION, &[true], ANY_INSTANCES, None, None, Set, restricted),
            ("3", Evaluate, false, &[Unset], &[Clean], ANY_LABELS, SETTLED, None, off, Remove, privileged),
            ("4", Evaluate, false, &[Unset], &[Violations], ANY_LABELS, SETTLED, Some(Legacy), off, Remove, privileged),
            ("5", Evaluate, false, &[Unset], &[NotEvaluated], ANY_LABELS, SETTLED, None, off, Remove, privileged),
            ("6", Evaluate, false, &[Restricted], &[Clean, NotEvaluated], ANY_LABELS, SETTLED, None, off, Remove, privileged),
            ("7", Evaluate, false, &[Restricted], &[Violations], ANY_LABELS, SETTLED, None, off, Remove, privileged),
            ("8", Evaluate, false, &[Legacy], ANY_EVALUATION, ANY_LABELS, SETTLED, None, off, Remove, privileged),
            ("9, as 3 and 5", Evaluate, true, &[Unset], &[Clean, NotEvaluated], &[true], ANY_INSTANCES, None, off, Set, restricted),
            ("9, as 4", Evaluate, true, &[Unset], &[Violations], &[true], ANY_INSTANCES, Some(Legacy), off, Set, restricted),
            ("9, as 6 to 8", Evaluate, true, &[Restricted, Legacy], ANY_EVALUATION, &[true], ANY_INSTANCES, None, off, Set, restricted),
            ("10", Enforce, false, WILLING, ANY_EVALUATION, ANY_LABELS, SETTLED, None, off, Remove, privileged),
            ("11", Enforce, false, WILLING, ANY_EVALUATION, ANY_LABELS, ENFORCING, None, off, Keep, privileged),
            ("12", Enforce, false, &[Legacy], ANY_EVALUATION, ANY_LABELS, SETTLED, None, legacy, Remove, privileged),
            ("13", Enforce, false, &[Legacy], ANY_EVALUATION, ANY_LABELS, ENFORCING, None, legacy, Keep, privileged),
            ("14", Enforce, true, &[Legacy], ANY_EVALUATION, ANY_LABELS, SETTLED, None, legacy, Remove, privileged),
            ("15", Enforce, true, &[Legacy], ANY_EVALUATION, ANY_LABELS, ENFORCING, None, legacy, Keep, privileged),
            ("16", Enforce, true, WILLING, ANY_EVALUATION, &[false], SETTLED, None, progressing, Set, privileged),
            ("17", Enforce, true, WILLING, ANY_EVALUATION, &[true], &[Instances::None, Instances::Mixed], None, progressing, Set, restricted),
            ("18", Enforce, true, WILLING, ANY_EVALUATION, &[true], &[Instances::All], None, Some(StatusMode::Restricted), Set, restricted),
            ("19, without 18 before", Enforce, true, WILLING, ANY_EVALUATION, &[false], &[Instances::All], None, progressing, Set, restricted),
            ("20", Enforce, true, WILLING, ANY_EVALUATION, &[false], &[Instances::Mixed], None, progressing, Set, restricted),
            // Not in the table: the order of things where the gate alone decides, and in the middle of a downgrade.
            ("1 and 3 to 8, still enforcing", Introduce, false, ANY_SPEC, ANY_EVALUATION, ANY_LABELS, ENFORCING, None, None, Keep, privileged),
            ("3 to 8, still enforcing", Evaluate, false, WILLING, &[Clean], ANY_LABELS, ENFORCING, None, off, Keep, privileged),
            ("2, before the labels", Introduce, true, ANY_SPEC, ANY_EVALUATION, &[false], SETTLED, None, None, Set, privileged),
            ("9, before the labels", Evaluate, true, &[Restricted], ANY_EVALUATION, &[false], SETTLED, None, off, Set, privileged),
        ];
        // No row is forgotten; what comes after 19 without 18 is in a test of its own.
        let numbers: BTreeSet<u8> = rows
            .iter()
            .filter_map(|row| row.0.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok())
            .collect();
        assert_eq!(numbers, (1..=20).collect());
        for &(
            row,
            release,
            gate,
            specs,
            evaluations,
            labels,
            instances,
            spec_write,
            status,
            enforce_labels,
            level,
        ) in rows
        {
            for &spec in specs {
                for &evaluation in evaluations {
                    for &labels_done in labels {
                        for &instances in instances {
                            let inputs = Inputs {
                                release,
                                gate,
                                spec,
                                evaluation,
                                labels_done,
                                instances,
                                ..Inputs::default()
                            };
                            let expected =
                                Outputs { spec_write, status, enforce_labels, default_enforce: level };
                            assert_eq!(decide(inputs), expected, "row {row}: {inputs:?}");
                        }
                    }
                }
            }
        }
    }

    /// The transitions of release n+1, by the status they begin with.
    #[test]
    fn every_transition_of_the_table() {
        let base = Inputs { release: Release::Enforce, gate: true, ..Inputs::default() };
        let enforcing = Inputs {
            status: StatusMode::Restricted,
            labels_done: true,
            instances: Instances::All,
            restricted_requested: true,
            ..base
        };
        let progressing = Inputs { status: StatusMode::Progressing, ..base };
        #[rustfmt::skip]
        let transitions = [
            ("upgrade, gate on", base, StatusMode::Progressing),
            ("labels and instances done", Inputs { status: StatusMode::Progressing, ..enforcing }, StatusMode::Restricted),
            ("Progressing, spec becomes Legacy", Inputs { spec: Legacy, ..progressing }, StatusMode::Legacy),
            ("Restricted, spec becomes Legacy", Inputs { spec: Legacy, ..enforcing }, StatusMode::Legacy),
            ("Legacy, spec becomes unset, whatever violates", Inputs { status: StatusMode::Legacy, evaluation: Violations, ..base }, StatusMode::Progressing),
            ("Legacy, spec becomes Restricted", Inputs { status: StatusMode::Legacy, spec: Restricted, ..base }, StatusMode::Progressing),
            ("Progressing, gate off", Inputs { gate: false, ..progressing }, StatusMode::NotEnabled),
            ("Restricted, gate off", Inputs { gate: false, ..enforcing }, StatusMode::NotEnabled),
            ("Legacy, gate off", Inputs { gate: false, spec: Legacy, status: StatusMode::Legacy, ..base }, StatusMode::Legacy),
            ("gate on again", Inputs { spec: Restricted, ..base }, StatusMode::Progressing),
            ("Restricted, new violations", Inputs { evaluation: Violations, ..enforcing }, StatusMode::Restricted),
        ];
        for (case, inputs, expected) in transitions {
            assert_eq!(decide(inputs).status, Some(expected), "{case}");
            assert_eq!(decide(inputs).spec_write, None, "{case}: violations decide nothing");
        }
        // The way out is the configuration first, then labels.
        for (case, inputs) in [
            ("spec becomes Legacy", Inputs { spec: Legacy, ..enforcing }),
            ("gate off", Inputs { gate: false, ..enforcing }),
            ("downgrade", Inputs { release: Release::Evaluate, gate: false, ..enforcing }),
        ] {
            let first = decide(inputs);
            assert_eq!((first.default_enforce, first.enforce_labels), (Level::Privileged, Keep), "{case}");
            let rolled = Inputs { instances: Instances::None, restricted_requested: false, ..inputs };
            assert_eq!(decide(rolled).enforce_labels, Remove, "{case}");
        }
    }

    /// Where the design contradicts itself, this is the decision.
    #[test]
    fn every_contradiction_of_the_design_is_resolved() {
        let base = Inputs { release: Release::Enforce, gate: true, ..Inputs::default() };
        let labelled = Inputs { labels_done: true, status: StatusMode::Progressing, ..base };
        let x1 = decide(labelled);
        assert_eq!(
            (x1.default_enforce, x1.status),
            (Level::Restricted, Some(StatusMode::Progressing)),
            "X1: no deadlock"
        );
        assert_eq!(
            decide(base).enforce_labels,
            Set,
            "X2: labels follow the status, which the spec cannot be"
        );
        let restricted = Inputs { status: StatusMode::Restricted, instances: Instances::All, ..labelled };
        assert_eq!(decide(restricted).enforce_labels, Set, "X3: kept at Restricted");
        let found = Inputs { release: Release::Evaluate, gate: false, evaluation: Violations, ..base };
        assert_eq!(decide(found).spec_write, Some(Legacy), "X4: silence is careful");
        assert_eq!(decide(Inputs { spec: Restricted, ..found }).spec_write, None, "X4: an opt-in stays");
        assert_eq!(
            decide(Inputs { gate: false, ..labelled }).status,
            Some(StatusMode::NotEnabled),
            "X5: not for ever Progressing"
        );
        let back = decide(Inputs { gate: false, ..restricted });
        assert_eq!(
            (back.default_enforce, back.enforce_labels),
            (Level::Privileged, Keep),
            "X6: configuration first"
        );
        let fixed = Inputs { spec: Legacy, evaluation: Clean, ..found };
        assert_eq!(decide(fixed).spec_write, None, "X7: Legacy is not taken back");
        assert_eq!(
            decide(Inputs { evaluation: NotEvaluated, ..base }).status,
            Some(StatusMode::Progressing),
            "X8: unchecked"
        );
        // X9, when labels are done, is `labels::are_done`.
    }

    #[test]
    fn row_19_restricted_is_not_taken_back_for_a_new_namespace() {
        let restricted = Inputs {
            release: Release::Enforce,
            gate: true,
            status: StatusMode::Restricted,
            instances: Instances::All,
            restricted_requested: true,
            ..Inputs::default()
        };
        let row_19 = decide(restricted);
        assert_eq!(row_19.status, Some(StatusMode::Restricted));
        assert_eq!((row_19.enforce_labels, row_19.default_enforce), (Set, Level::Restricted));
    }

    #[test]
    fn a_requested_rollout_goes_on_before_any_instance_has_it() {
        let begun = Inputs {
            release: Release::Enforce,
            gate: true,
            status: StatusMode::Progressing,
            restricted_requested: true,
            ..Inputs::default()
        };
        assert_eq!(decide(begun).default_enforce, Level::Restricted);
    }

    #[test]
    fn waves_that_are_taken_back_take_the_configuration_back_first() {
        let enforcing = Inputs {
            release: Release::Enforce,
            gate: true,
            status: StatusMode::Restricted,
            labels_done: true,
            instances: Instances::All,
            restricted_requested: true,
            ..Inputs::default()
        };
        let back = decide(Inputs { rollback: true, ..enforcing });
        assert_eq!((back.default_enforce, back.status), (Level::Privileged, Some(StatusMode::Progressing)));
        assert_eq!(back.enforce_labels, Set, "other waves stay as they are");
        assert_eq!(decide(enforcing).status, Some(StatusMode::Restricted));
    }

    #[test]
    fn instances_are_judged_by_what_they_report() {
        let (on, off) = (Some(Level::Restricted), Some(Level::Privileged));
        for (reports, expected) in [
            (&[][..], Instances::None),
            (&[off, off], Instances::None),
            (&[on, off], Instances::Mixed),
            (&[on, on], Instances::All),
            (&[on, None], Instances::Mixed),
            (&[off, None], Instances::Mixed),
        ] {
            assert_eq!(Instances::of(reports.iter().copied()), expected, "{reports:?}");
        }
    }
}
