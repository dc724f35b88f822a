#[tokio::main]
async fn main() -> Result<(), sqlx::Error> {
    let pool = sqlx::PgPool::connect(url()).await?;
    let version: String = sqlx::query_scalar("select version()").fetch_one(&pool).await?;
    println!("{version}");
    Ok(())
}
