--[[
ones_submit.lua: checks what users write for ones-slurm when they submit, so that a slip is told at once by sbatch
and not an hour later by a job that never grows. job_submit.lua, which lies beside it, loads it.

It speaks to nobody (onesd may be down), takes a few microseconds, and a job without an `ones:` word in its comment
passes untouched; so does every job if this script itself goes wrong.
]]

-- What a site may set.
local SITE = {
  -- An elastic batch job that names no partition goes to this one, for example "elastic", where [adoption.partitions]
  -- of the site file lets the co-scheduler act; nil leaves all jobs where they are.
  partition = nil,
}

local EXAMPLE = "for example --comment=ones:nodes=1-4,batch=64-4096"
local RANGES = { nodes = true, gpus = true, replicas = true, devices = true, batch = true }

-- What is wrong with `key=value`, or nil.
local function fault_of_range(key, value)
  local low, high = value:match("^(%d+)%-(%d+)$")
  low = low or value:match("^(%d+)$")
  high = high or low
  if low == nil or #low > 9 or #high > 9 then
    return string.format("%s=%s is not a number or a range, such as %s=1-4", key, value:sub(1, 40), key)
  end
  low, high = tonumber(low), tonumber(high)
  if low < 1 then
    return string.format("%s must be at least 1", key)
  end
  if high < low then
    return string.format("%s=%d-%d runs backwards", key, low, high)
  end
  return nil
end

-- What is wrong with what goes, or does not go, together, or nil. `seen` has the values by key.
local function fault_of_pair(seen)
  if seen.nodes and seen.gpus then
    return "nodes and gpus exclude each other"
  elseif seen.pipeline == nil then
    return (seen.replicas or seen.devices) and "replicas and devices go with a pipeline" or nil
  elseif seen.nodes or seen.gpus then
    return "the size of a pipeline job is replicas=1-4, neither nodes nor gpus"
  elseif seen.replicas == nil then
    return "a pipeline goes with replicas=1-4"
  elseif seen.pipeline == "" then
    return "pipeline= names no file"
  elseif seen.devices ~= nil then
    local low, high = seen.devices:match("^(%d+)%-(%d+)$")
    return low ~= nil and tonumber(low) ~= tonumber(high) and "devices is one number" or nil
  end
  return nil
end

-- The bodies of all `ones:` words of a comment.
local function words_of(comment)
  local bodies, from = {}, 1
  while true do
    local first, last = comment:find("ones:", from, true)
    if first == nil then
      return bodies
    end
    local body = comment:match("^[^%s;]*", last + 1)
    local begins = first == 1 or comment:sub(first - 1, first - 1):find("[%s;,]") ~= nil
    -- A companion's word is no wish; its job is one that the co-scheduler asked for.
    if begins and body:sub(1, 13) ~= "companion-of=" then
      bodies[#bodies + 1] = body
      from = last + 1 + #body
    else
      from = last + 1
    end
  end
end

-- What is wrong with the wish in this comment (nil: nothing), and whether there is one.
local function fault_of_comment(comment)
  local bodies = words_of(comment)
  if #bodies == 0 then
    return nil, false
  end
  if #bodies > 1 then
    return "the comment holds more than one ones: word", true
  end
  local seen = {}
  for part in (bodies[1] .. ","):gmatch("([^,]*),") do
    local key, value = part:match("^([^=]*)=(.*)$")
    if key == nil or not (RANGES[key] or key == "pipeline") then
      local keys = "nodes, gpus, pipeline, devices, replicas, batch"
      return string.format("'%s' is not known; the keys are %s", part:sub(1, 40), keys), true
    end
    if seen[key] then
      return key .. " is given twice", true
    end
    seen[key] = value
    local fault = RANGES[key] and fault_of_range(key, value)
    if fault then
      return fault, true
    end
  end
  return fault_of_pair(seen), true
end

-- --ones-nodes and the like, which the SPANK plugin leaves in the job's control environment.
local function wish_of_options(job_desc)
  local parts = {}
  for _, key in ipairs({ "nodes", "gpus", "batch" }) do
    local value
    for _, entry in pairs(job_desc.spank_job_env or {}) do
      value = tostring(entry):match("^ONES_" .. key:upper() .. "=(.*)$")
        or tostring(entry):match("^SPANK_ONES_" .. key:upper() .. "=(.*)$")
        or value
    end
    if value ~= nil then
      parts[#parts + 1] = key .. "=" .. value
    end
  end
  return #parts > 0 and "ones:" .. table.concat(parts, ",") or nil
end

local function refuse(fault)
  slurm.log_user("ones: %s (%s)", fault, EXAMPLE)
  return slurm.ERROR
end

local function submit(job_desc)
  local wish = wish_of_options(job_desc)
  if wish ~= nil then
    job_desc.comment = job_desc.comment and job_desc.comment .. " " .. wish or wish
  end
  if job_desc.comment == nil then
    return slurm.SUCCESS
  end
  local fault, elastic = fault_of_comment(job_desc.comment)
  if fault ~= nil then
    return refuse(fault)
  end
  if not elastic then
    return slurm.SUCCESS
  end
  if job_desc.requeue == 0 then
    slurm.log_user("ones: with --no-requeue this job can be made smaller, but hardly ever larger")
  end
  -- Only a batch job can be requeued, so only those are ours to move.
  if job_desc.partition == nil and job_desc.script ~= nil then
    job_desc.partition = SITE.partition
  end
  return slurm.SUCCESS
end

local function modify(job_desc)
  if job_desc.comment == nil then
    return slurm.SUCCESS
  end
  local fault = fault_of_comment(job_desc.comment)
  return fault ~= nil and refuse(fault) or slurm.SUCCESS
end

-- Whatever goes wrong in here is our trouble and not the user's.
local function harmless(check, job_desc)
  local fine, answer = pcall(check, job_desc)
  if fine then
    return answer
  end
  slurm.log_error("ones: job_submit.lua failed and lets the job pass: %s", tostring(answer))
  return slurm.SUCCESS
end

function ones_submit(job_desc)
  return harmless(submit, job_desc)
end

function ones_modify(job_desc)
  return harmless(modify, job_desc)
end
