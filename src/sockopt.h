/* SPDX-License-Identifier: GPL-2.0 */
#ifndef PS_SOCKOPT_H
#define PS_SOCKOPT_H

int ps_sockopt_init(void);
void ps_sockopt_exit(void);

#endif /* PS_SOCKOPT_H */
