--[[
job_submit.lua: what Slurm loads (`JobSubmitPlugins=lua`, this file beside slurm.conf). The rules are in
ones_submit.lua in the same folder; if that is missing or broken, every job passes and slurmctld starts all the same.

A site that has a job_submit.lua of its own adds the lines up to the functions to it, and calls
`ones_submit(job_desc)` and `ones_modify(job_desc)` where it likes. Slurm looks at the date of this file only: touch
it when the other changed.
]]

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "/etc/slurm/"
local loaded, why = pcall(dofile, here .. "ones_submit.lua")
if not loaded then
  slurm.log_error("ones: nothing is checked, for ones_submit.lua cannot be loaded: %s", tostring(why))
end

function slurm_job_submit(job_desc, _part_list, _submit_uid)
  return loaded and ones_submit(job_desc) or slurm.SUCCESS
end

function slurm_job_modify(job_desc, _job_rec, _part_list, _modify_uid)
  return loaded and ones_modify(job_desc) or slurm.SUCCESS
end

return slurm.SUCCESS
