/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_OVERFLOW_H
#define SHIM_LINUX_OVERFLOW_H

#include <stddef.h>

/* Of a struct with @n elements of its last member, an array. */
#define struct_size(p, member, n) offsetof(typeof(*(p)), member[n])

#endif /* SHIM_LINUX_OVERFLOW_H */
