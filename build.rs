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

    // The service traits that the server implements: the same, except that the events of streams are encoded straight from
    // the log, and that buffers are small.
    let services = out.join("services");
    fs::create_dir_all(&services)?;
    tonic_prost_build::configure()
        .build_client(false)
        .out_dir(services)
        .codec_path("crate::api::codec::SmallBufferCodec")
        .extern_path(".remuda.v1", "crate::api::proto")
        .extern_path(".remuda.v1.ExecuteResponse", "crate::api::encoding::EventMessage")
        .extern_path(".remuda.v1.StreamResultsResponse", "crate::api::encoding::EventMessage")
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
