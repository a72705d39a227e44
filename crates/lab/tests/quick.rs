//! The whole of it, in a hurry: measured, judged, and written down. The figures say nothing here.

use std::fs;

use extern4_lab::counted::Counted;
use extern4_lab::may_exec;
use extern4_lab::plan::{Plan, Side};
use extern4_lab::report::headline;

#[test]
fn a_quick_run_writes_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("counted");
    fs::write(&file, "hit\tNew\t0\t0\nhit\tBefore\t9\t3\n").unwrap();
    let (plan, mut counted) = (Plan::quick(), Counted::read(&file).unwrap());
    for (operation, instructions) in may_exec::REPEATED.into_iter().zip([30.0, 200.0, 500.0]) {
        Side::ALL.iter().for_each(|side| counted.note_instructions(operation, *side, instructions));
    }
    let mut heard = 0;
    let chapters = extern4_lab::run(&plan, &counted, folder.path(), &mut |_| heard += 1).unwrap();
    assert!(heard > 0 && chapters.len() == 5);

    let rows = || chapters.iter().flat_map(|chapter| &chapter.rows);
    assert!(rows().all(|row| Side::ALL.iter().all(|side| row.nanos(*side).median > 0.0)));
    assert!(rows().all(|row| row.samples(Side::New).len() == plan.repetitions));
    let verdicts = || chapters.iter().flat_map(|chapter| &chapter.verdicts);
    assert!(verdicts().all(|verdict| verdict.met.is_some()), "{:?}", verdicts().collect::<Vec<_>>());

    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let (report, json) = (read("report.md"), read("report.json"));
    for chapter in &chapters {
        assert!(report.contains(&format!("## {}", chapter.title)));
        assert!(
            chapter.workloads().iter().all(|workload| report.contains(workload) && json.contains(workload))
        );
        let chart = read(&format!("{}.svg", chapter.name));
        assert!(chart.starts_with("<svg") && chart.contains("operations in a microsecond"));
    }
    assert!(headline::text(&chapters).contains("x Before"));
}
