std = "lua53"
globals = {
  "slurm", "slurm_job_submit", "slurm_job_modify", "ones_submit", "ones_modify",
  "slurm_cli_setup_defaults", "slurm_cli_pre_submit", "slurm_cli_post_submit",
}
