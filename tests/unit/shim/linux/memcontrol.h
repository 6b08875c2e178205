/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_MEMCONTROL_H
#define SHIM_LINUX_MEMCONTROL_H

/* As in a kernel without CONFIG_MEMCG: nobody is charged. */
struct mem_cgroup;

#endif /* SHIM_LINUX_MEMCONTROL_H */
