//! Brings the gfx950 code objects up to date, so that `maturin develop` works without any other step.

#![expect(clippy::print_stderr, reason = "cargo shows what a failed build script wrote there")]

use std::path::Path;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let profile = std::env::var("PROFILE").unwrap_or_default();
    println!("cargo:rustc-env=SPECDEC_PROFILE={profile}");

    // Read at run time: checkouts that share a target directory share this script's binary.
    let crate_dir = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let root = Path::new(&crate_dir).join("../..");
    let script = root.join("kernels/build.py");
    println!("cargo:rerun-if-changed={}", root.join("kernels").display());
    println!("cargo:rerun-if-changed={}", root.join("python/kimi_k3_specdec/kernels/manifest.json").display());
    for variable in ["SPECDEC_CLANG", "ROCM_PATH"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }

    // maturin names the interpreter it builds for; a bare cargo build takes the one on PATH.
    let python = std::env::var("PYO3_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    match Command::new(&python).arg(&script).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        // build.py has said what is wrong and what to do; cargo shows it.
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!(
                "error: `{python}` does not start ({error}); `{}` needs it to build the code objects\n\
                 hint: put python3 (3.10 or newer) on PATH, or set PYO3_PYTHON",
                script.display()
            );
            ExitCode::FAILURE
        }
    }
}
