import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { createBranch } from "../../api/changes";
import { choicesQuery, type InProject } from "../../api/queries";
import { useRights } from "../../api/rights";
import { Button, Empty, Field } from "../../ui/parts";
import { Sizes } from "../../ui/Sizes";
import { Trouble } from "../../ui/Trouble";
import { Stump } from "./Stump";

/** A project without branches: an empty database is the first. */
export function FirstBranch({ path }: { path: InProject }) {
  const choices = useQuery(choicesQuery(path));
  const rights = useRights(path.organizationID);
  const [chosen, setChosen] = useState<{ image?: string; type?: string }>({});
  const image = chosen.image ?? choices.data?.images[0]?.name;
  const type = chosen.type ?? choices.data?.types[0]?.name;
  const region = choices.data?.regions[0]?.id;
  const made = useMutation({
    mutationFn: (of: { image: string; instanceType: string; region: string }) =>
      createBranch(path, { mode: "custom", name: "main", configuration: of }),
  });
  const why = rights.why("branch:write") ?? (image && type && region ? undefined : "Nothing to choose from yet.");
  return (
    <div className="card">
      <Empty
        title="No branches yet"
        picture={<Stump state="asleep" bytes={2 ** 36} own={null} />}
        action={
          <form
            className="first-branch"
            onSubmit={(event) => {
              event.preventDefault();
              if (!why && image && type && region) made.mutate({ image, instanceType: type, region });
            }}
          >
            <Field label="PostgreSQL">
              {(ids) => (
                <select
                  {...ids}
                  className="select"
                  value={image}
                  onChange={(event) => setChosen({ ...chosen, image: event.target.value })}
                >
                  {choices.data?.images.map(({ name, fullVersion }) => (
                    <option key={name} value={name}>
                      {fullVersion}
                    </option>
                  ))}
                </select>
              )}
            </Field>
            <Field label="Size">
              {(ids) => (
                <select
                  {...ids}
                  className="select"
                  value={type}
                  onChange={(event) => setChosen({ ...chosen, type: event.target.value })}
                >
                  {choices.data && <Sizes types={choices.data.types} />}
                </select>
              )}
            </Field>
            <Button type="submit" kind="main" why={why} disabled={made.isPending}>
              Make main
            </Button>
          </form>
        }
      >
        The first is an empty database that others are made from.
      </Empty>
      {(made.error ?? choices.error) && <Trouble error={(made.error ?? choices.error) as Error} />}
    </div>
  );
}
