//! What doubles of other people's services have in common.

use axum::Router;

/// Serves a double at an address of its own, to the end of the process; returns the address.
pub(crate) fn serve(router: Router) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("a listener for tasks");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            axum::serve(listener, router).await.expect("it serves");
        });
    });
    url
}
