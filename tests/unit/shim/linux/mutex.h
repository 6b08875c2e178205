/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_MUTEX_H
#define SHIM_LINUX_MUTEX_H

#include <pthread.h>

struct mutex {
	pthread_mutex_t m;
};

static inline void mutex_init(struct mutex *lock)
{
	pthread_mutex_init(&lock->m, NULL);
}

static inline void mutex_lock(struct mutex *lock)
{
	pthread_mutex_lock(&lock->m);
}

static inline void mutex_unlock(struct mutex *lock)
{
	pthread_mutex_unlock(&lock->m);
}

#endif /* SHIM_LINUX_MUTEX_H */
