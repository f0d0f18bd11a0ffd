//! `remuda bench baseline`: serves what a pool is measured against, until it is told to stop.

use tokio::{net::TcpListener, runtime};
use tokio_util::sync::CancellationToken;

use crate::{
    bench,
    cli::{
        args::BaselineArgs,
        exit::{Exit, Failure},
        output,
        run::Interrupts,
    },
};

/// In the same kind of runtime as `serve`.
pub(super) fn baseline(args: &BaselineArgs) -> Result<Exit, Failure> {
    let runtime = runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::system)?;
    runtime.block_on(async {
        let mut interrupts = Interrupts::listen().map_err(Failure::system)?;
        let cannot = |error| Failure::system(format!("cannot listen on {}: {error}", args.listen));
        let listener = TcpListener::bind(args.listen).await.map_err(cannot)?;
        output::line(&listener.local_addr().map_err(cannot)?.to_string())?;
        let closing = CancellationToken::new();
        let mut serving = std::pin::pin!(bench::serve_baseline(listener, closing.clone()));
        tokio::select! {
            failed = &mut serving => failed.map_err(Failure::system)?,
            // Dropping it closes what clients keep open.
            () = interrupts.next() => {}
        }
        Ok(Exit::Done)
    })
}
