//! `remuda bench baseline`: runs the baseline server until a signal.

use tokio::{net::TcpListener, runtime};

use crate::{
    bench,
    cli::{
        args::BaselineArgs,
        exit::{CliError, CliExit},
        output,
        run::Interrupts,
    },
};

/// Uses the same kind of runtime as `serve`.
pub(super) fn baseline(args: &BaselineArgs) -> Result<CliExit, CliError> {
    let runtime = runtime::Builder::new_multi_thread().enable_all().build().map_err(CliError::system)?;
    runtime.block_on(async {
        let mut interrupts = Interrupts::listen().map_err(CliError::system)?;
        let cannot = |error| CliError::system(format!("cannot listen on {}: {error}", args.listen));
        let listener = TcpListener::bind(args.listen).await.map_err(cannot)?;
        output::line(&listener.local_addr().map_err(cannot)?.to_string())?;
        tokio::select! {
            failed = bench::serve_baseline(listener) => failed.map_err(CliError::system)?,
            () = interrupts.next() => {}
        }
        Ok(CliExit::Done)
    })
}
