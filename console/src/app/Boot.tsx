import { useQuery } from "@tanstack/react-query";
import { Outlet } from "@tanstack/react-router";
import { sessionQuery } from "../api/queries";
import { Mark } from "../ui/Mark";
import { Trouble } from "../ui/Trouble";

/** Who is signed in has to be known before anything is shown. */
export function Boot() {
  const session = useQuery({ ...sessionQuery, refetchOnWindowFocus: "always" });
  if (session.data) return <Outlet />;
  return (
    <main className="boot">
      <title>Coppice</title>
      <Mark size={48} />
      {session.error ? (
        <>
          <h1>Coppice does not answer</h1>
          <Trouble error={session.error} again={() => session.refetch()} />
        </>
      ) : (
        <h1 className="hidden-visually">Loading</h1>
      )}
    </main>
  );
}
