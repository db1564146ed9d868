/*
 * ones_spank: real options for sbatch, srun and salloc instead of a word in the comment.
 *
 *     sbatch --ones-gpus=1-8 --ones-batch=64-4096 train.sbatch
 *
 * The options go into the job's control environment, where job_submit.lua finds them when the job is submitted; it
 * writes the same comment that a user would have written, and checks it. List the plugin as `optional` in
 * plugstack.conf: then a missing or broken one stops neither slurmd nor sbatch.
 */
#include <stdio.h>
#include <string.h>

#include <slurm/spank.h>

SPANK_PLUGIN(ones, 1)

/* A longer value is no range of numbers; job_submit.lua would refuse it anyway. */
#define LONGEST_VALUE 64

enum { NODES, GPUS, BATCH, OPTIONS };

static const char *const variables[OPTIONS] = {"ONES_NODES", "ONES_GPUS", "ONES_BATCH"};
static char values[OPTIONS][LONGEST_VALUE + 1];

static int keep(int which, const char *value, int remote)
{
    (void)remote;
    if (which < 0 || which >= OPTIONS)
        return -1;
    if (value == NULL || *value == '\0' || strlen(value) > LONGEST_VALUE) {
        slurm_error("ones: give a number or a range, such as 1-8");
        return -1;
    }
    snprintf(values[which], sizeof(values[which]), "%s", value);
    return 0;
}

static struct spank_option options[OPTIONS] = {
    {"ones-nodes", "min-max", "let ones-slurm choose between so many nodes", 1, NODES, (spank_opt_cb_f)keep},
    {"ones-gpus", "min-max", "let ones-slurm choose between so many GPUs", 1, GPUS, (spank_opt_cb_f)keep},
    {"ones-batch", "min-max", "let ones-slurm choose a global batch between so many samples", 1, BATCH,
     (spank_opt_cb_f)keep},
};

/* Registered by hand: sbatch and salloc do not read an exported table of options, only srun does. */
int slurm_spank_init(spank_t spank, int ac, char **av)
{
    (void)ac;
    (void)av;
    for (int which = 0; which < OPTIONS; which++)
        if (spank_option_register(spank, &options[which]) != ESPANK_SUCCESS)
            slurm_error("ones: the option --%s cannot be offered", options[which].name);
    return 0;
}

/* In sbatch, srun and salloc, when the options have been read and before the job is submitted. */
int slurm_spank_init_post_opt(spank_t spank, int ac, char **av)
{
    (void)ac;
    (void)av;
    if (spank_remote(spank))
        return 0;
    for (int which = 0; which < OPTIONS; which++)
        if (values[which][0] != '\0')
            spank_job_control_setenv(spank, variables[which], values[which], 1);
    return 0;
}
