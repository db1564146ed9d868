--[[
cli_filter.lua: defaults from the environment, for people who submit many jobs of a kind:

    export ONES_NODES=1-4 ONES_BATCH=64-4096
    sbatch train.sbatch                     # as with --comment=ones:nodes=1-4,batch=64-4096

Install it beside slurm.conf and set `CliFilterPlugins=lua`. A comment that holds an `ones:` word already wins; only
sbatch is touched, for the co-scheduler moves batch jobs. If this script goes wrong, the command goes on without it.
]]

local KEYS = { "nodes", "gpus", "batch" }

local function wish_of_environment()
  local parts = {}
  for _, key in ipairs(KEYS) do
    local value = os.getenv("ONES_" .. key:upper())
    if value ~= nil and value ~= "" then
      parts[#parts + 1] = key .. "=" .. value
    end
  end
  return #parts > 0 and "ones:" .. table.concat(parts, ",") or nil
end

local function add_wish(options)
  -- Inside a job of ours, ONES_BATCH is the batch of that job and no default for others.
  if options["type"] ~= "sbatch" or os.getenv("ONES_RUN_DIR") then
    return
  end
  local comment = options["comment"]
  if comment == nil or comment == "(null)" then
    comment = ""
  end
  if (" " .. comment):find("[%s;,]ones:") then
    return
  end
  local wish = wish_of_environment()
  if wish ~= nil then
    options["comment"] = comment == "" and wish or comment .. " " .. wish
  end
end

function slurm_cli_setup_defaults(_options, _early)
  return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, _offset)
  local fine, what = pcall(add_wish, options)
  if not fine then
    slurm.log_info("ones: cli_filter.lua failed and changes nothing: %s", tostring(what))
  end
  return slurm.SUCCESS
end

function slurm_cli_post_submit(_offset, _job_id, _step_id)
  return slurm.SUCCESS
end
