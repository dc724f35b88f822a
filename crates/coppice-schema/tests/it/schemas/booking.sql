CREATE EXTENSION btree_gist;
CREATE TYPE room_kind AS ENUM ('single', 'double', 'suite');
CREATE TYPE hours AS RANGE (subtype = time, multirange_type_name = hour_set);
CREATE TABLE rooms (id int PRIMARY KEY, kind room_kind NOT NULL DEFAULT 'single', kinds room_kind[] DEFAULT '{single,double}', open hours, floor smallint);
CREATE TABLE stays (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, room int NOT NULL REFERENCES rooms, during tstzrange NOT NULL,
  guest text NOT NULL, cancelled boolean NOT NULL DEFAULT false, price numeric,
  CONSTRAINT no_two EXCLUDE USING gist (room WITH =, during WITH &&) WHERE (NOT cancelled) DEFERRABLE);
ALTER TABLE stays ADD CONSTRAINT paid CHECK (price > 0) NOT VALID;
CREATE UNIQUE INDEX stays_key ON stays (room, guest);
ALTER TABLE stays REPLICA IDENTITY USING INDEX stays_key;
CREATE FUNCTION nights(r tstzrange, fee numeric DEFAULT 1) RETURNS int IMMUTABLE STRICT PARALLEL SAFE LANGUAGE sql RETURN (extract(epoch FROM upper(r) - lower(r)) / 86400)::int;
CREATE FUNCTION is_suite(k room_kind) RETURNS boolean IMMUTABLE LANGUAGE sql AS $$ SELECT k = 'suite' $$;
CREATE INDEX suites ON rooms (floor) WHERE kind = 'suite';
CREATE INDEX long_stays ON stays (nights(during)) WHERE nights(during) > 3 AND (NOT cancelled);
ALTER TABLE rooms ADD CONSTRAINT suite_up CHECK (NOT is_suite(kind) OR floor > 3);
CREATE VIEW free AS SELECT r.id, r.kind FROM rooms r WHERE NOT EXISTS (SELECT FROM stays s WHERE s.room = r.id AND s.during @> now() AND NOT s.cancelled);
CREATE VIEW suites_free AS SELECT * FROM free WHERE kind >= 'double';
CREATE PROCEDURE cancel(stay bigint, OUT done boolean) LANGUAGE plpgsql AS $$ BEGIN UPDATE stays SET cancelled = true WHERE id = stay; done := FOUND; END $$;
CREATE FUNCTION rooms_of(k room_kind DEFAULT 'double') RETURNS SETOF rooms STABLE LANGUAGE sql ROWS 10 AS $$ SELECT * FROM rooms WHERE kind = k $$;
CREATE FUNCTION many(VARIADIC ids int[]) RETURNS TABLE (id int, open hours) LANGUAGE sql AS $$ SELECT id, open FROM rooms WHERE id = ANY (ids) $$;
