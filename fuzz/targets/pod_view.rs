#![no_main]
//! Any YAML: whatever can be read as a pod is prepared, synced, validated, judged and explained without a panic, under
//! every release and the designs, and what the API server writes does not make it write again.

use libfuzzer_sys::fuzz_target;
use palisade_model::{
    compat::Compat,
    effective::effective_contexts,
    lower::{absorb, lower},
    pod::Pod,
    pod_view::PodView,
    prepare::{Subject, prepare_for_create},
    sync::sync,
    validation::validate_create,
    warnings::warnings,
};
use palisade_policy::standards::{
    evaluator::Evaluator,
    level::{Level, LevelVersion, Version},
};
use palisade_yaml::{Limits, parse};

fuzz_target!(|text: &str| {
    let parsed = parse(text, &Limits::default());
    for document in &parsed.documents {
        let Ok(pod) = document.deserialize::<Pod<'_>>() else { continue };
        for compat in [19, 24, 27, 30, 37].map(Compat::kubernetes).into_iter().chain([Compat::designs()]) {
            let mut pod = pod.clone();
            prepare_for_create(&mut pod, Subject::Pod, &compat);
            sync(&mut pod, &compat);
            assert!(sync(&mut pod.clone(), &compat).changes.is_empty(), "a synced pod stays as it is");
            let view = PodView::of_pod(&pod);
            for problem in validate_create(&view, &compat) {
                assert!(!problem.to_string().is_empty());
            }
            let _ = (warnings(&view, &compat), lower(&view));
            for context in effective_contexts(&view, &compat) {
                assert_eq!(context.rows().len(), 26);
            }
            let evaluator = Evaluator::of(&compat);
            for level in [Level::Baseline, Level::Restricted] {
                let outcome = evaluator.evaluate(LevelVersion::new(level, Version::Latest), &view);
                assert_eq!(outcome.allowed(), outcome.details().is_empty());
            }
            absorb(&mut pod);
        }
    }
});
