//! Runs the exhaustive model's configurations of the size for checks, or those named. Fails if a law was broken or a search did not end.

use std::process::ExitCode;

use highwater_sim::model::{Size, Told, named, run_all};

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let mut list = named();
    list.retain(
        |one| if wanted.is_empty() { one.size == Size::Ci } else { wanted.iter().any(|name| name == one.name) },
    );
    let jobs = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(2));
    let reports = run_all(&list, jobs, &|one, what| {
        if let Told::Ended(report) = what {
            eprintln!("{}: {report}", one.name);
        }
    });
    let good = !reports.is_empty() && reports.iter().all(|report| report.is_good());
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
