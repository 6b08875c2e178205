/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Connections that outlive their listener.
 */
#ifndef PS_MIGRATE_H
#define PS_MIGRATE_H

#include "group.h"

#ifdef PS_HAVE_MIGRATE
void ps_migrate_begin(struct ps_group *g);
void ps_migrate_wake(struct ps_group *g);

/* gone.c */
bool ps_gone_keep(struct ps_member *m);
void ps_gone_closed(struct ps_member *m);
void ps_gone_exit(void);
#else
/* This kernel can't: what a listener has queued goes with it. */
static inline void ps_migrate_begin(struct ps_group *g) { }
static inline void ps_migrate_wake(struct ps_group *g) { }
static inline bool ps_gone_keep(struct ps_member *m) { return false; }
static inline void ps_gone_closed(struct ps_member *m) { }
static inline void ps_gone_exit(void) { }
#endif /* PS_HAVE_MIGRATE */

#endif /* PS_MIGRATE_H */
