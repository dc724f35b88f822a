"""Branches that are in the way and nothing else."""

FILLER = """
WITH made AS (
    INSERT INTO projects (id, organization_id, name, base_scale_to_zero, base_inactivity_minutes,
        child_scale_to_zero, child_inactivity_minutes, ip_filtering_enabled, ip_ranges)
    SELECT 'prj_filler' || n, '{organization}', 'filler', false, 30, false, 30, false, '[]'
    FROM generate_series({first}, {last}) n WHERE n % 100 = 0 RETURNING id),
spread AS (SELECT n, 'prj_filler' || (n - n % 100) AS project FROM generate_series({first}, {last}) n),
volume AS (
    INSERT INTO volumes (id, host_id, branch_id, state, account, image_major, image_minor)
    SELECT 'vol_filler' || n, (SELECT id FROM hosts), NULL, 'removed', 1, 17, 0 FROM spread RETURNING id)
INSERT INTO branches (id, project_id, name, description, region, image_major, image_minor, instance_type,
    replicas, storage_gib, parameters, preload_libraries, scale_to_zero, inactivity_minutes, goal, state,
    volume_id, password_sealed, managed_role_verifier)
SELECT 'f' || lpad(n::text, 25, '0'), project, 'b' || n, '', 'local', 17, 0, 'micro', 0, 10, '{{}}', '{{}}',
    false, 30, 'hibernated', 'hibernated', 'vol_filler' || n, '', '' FROM spread
"""
