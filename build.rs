//! Compiles `proto/` without a `protoc`: protox parses it, tonic-prost-build writes the Rust into `OUT_DIR`.

use std::{env, error::Error, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = ["types.proto", "worker_pool.proto", "pool_event.proto", "pool_admin.proto"];
    let files = files.map(|file| format!("remuda/v1/{file}"));
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_source_info(true).include_imports(true);
    compiler.open_files(files)?;

    // Reflection serves this set, comments included.
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("remuda.bin"), compiler.encode_file_descriptor_set())?;

    tonic_prost_build::configure().compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
