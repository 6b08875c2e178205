/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Device classes: constness and members differ between series.
 */
#ifndef PS_COMPAT_CLASS_H
#define PS_COMPAT_CLASS_H

#include <linux/device.h>
#include <linux/module.h>
#include <net/net_namespace.h>

#ifdef PS_CLASS_CONST
#define PS_CLASS_ATTR_ARGS						\
	const struct class *class, const struct class_attribute *attr
#else
#define PS_CLASS_ATTR_ARGS						\
	struct class *class, struct class_attribute *attr
#endif

#ifdef PS_CLASS_CONST_DEVICE
#define PS_CLASS_DEVICE const struct device
#else
#define PS_CLASS_DEVICE struct device
#endif

#ifdef PS_CLASS_CONST_RELEASE
#define PS_CLASS_RELEASED const struct class
#else
#define PS_CLASS_RELEASED struct class
#endif

/* What a kobj_type's get_ownership is asked about. */
#ifdef PS_KOBJECT_CONST
#define PS_KOBJECT const struct kobject
#else
#define PS_KOBJECT struct kobject
#endif

#ifdef PS_CLASS_HAS_OWNER
#define PS_CLASS_OWNER .owner = THIS_MODULE,
#else
#define PS_CLASS_OWNER
#endif

/* What marks a sysfs entry as a namespace's. */
#ifdef PS_CLASS_NS_COMMON
#define PS_NS_TAG(net) to_ns_common(net)
#define PS_NS_TAG_TYPE struct ns_common
#else
#define PS_NS_TAG(net) (net)
#define PS_NS_TAG_TYPE void
#endif

#endif /* PS_COMPAT_CLASS_H */
