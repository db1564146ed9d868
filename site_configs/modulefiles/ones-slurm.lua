-- Lmod module file: `module load ones-slurm` gives ones, ones-run and the templates. Set `prefix` to where the virtual
-- environment lies, on a file system that login and compute nodes share.
local prefix = "/opt/ones-slurm"

help([[
Elastic training jobs on Slurm: submit them, watch them, ask why.
    ones submit --nodes 1-4 train.sbatch      ones queue      ones why JOBID      ones report
Templates lie in $ONES_TEMPLATES.
]])
whatis("Name: ones-slurm")
whatis("Description: elastic co-scheduler for deep-learning jobs beside Slurm")

prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("MANPATH", pathJoin(prefix, "share/man"))
setenv("ONES_TEMPLATES", pathJoin(prefix, "share/ones-slurm/sbatch_templates"))
