/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_IF_H
#define SHIM_LINUX_IF_H

#define IFNAMSIZ 16

#endif /* SHIM_LINUX_IF_H */
