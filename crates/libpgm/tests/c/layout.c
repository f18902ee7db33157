/* How <pgm/pgm.h> lays out the structures that programs share with the library, one member a line: its
 * offset and its size in bytes. tests/layouts.txt has the same lines.
 */
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <netinet/in.h>

#include <pgm/pgm.h>

#define WHOLE(type) printf("%s %zu\n", #type, sizeof(type))
#define PART(type, member) \
  printf("%s.%s %zu %zu\n", #type, #member, offsetof(type, member), sizeof(((type*)0)->member))

typedef struct pgm_sockaddr_t pgm_sockaddr_t;
typedef struct pgm_interface_req_t pgm_interface_req_t;
typedef struct pgm_group_source_req pgm_group_source_req;
typedef struct pgm_addrinfo_t pgm_addrinfo_t;
typedef struct pgm_fecinfo_t pgm_fecinfo_t;
typedef struct pgm_pgmccinfo_t pgm_pgmccinfo_t;
typedef struct pgm_iovec pgm_iovec;
typedef struct pgm_msgv_t pgm_msgv_t;
typedef struct pgm_sk_buff_t pgm_sk_buff_t;
typedef struct group_req group_req;
typedef struct group_source_req group_source_req;
typedef struct pgm_header pgm_header;
typedef struct pgm_data pgm_data;

int main(void) {
  WHOLE(pgm_gsi_t);
  WHOLE(pgm_tsi_t);
  PART(pgm_tsi_t, gsi);
  PART(pgm_tsi_t, sport);
  WHOLE(pgm_sockaddr_t);
  PART(pgm_sockaddr_t, sa_port);
  PART(pgm_sockaddr_t, sa_addr);
  WHOLE(pgm_interface_req_t);
  PART(pgm_interface_req_t, ir_interface);
  PART(pgm_interface_req_t, ir_scope_id);
  PART(pgm_interface_req_t, ir_address);
  WHOLE(pgm_group_source_req);
  PART(pgm_group_source_req, gsr_interface);
  PART(pgm_group_source_req, gsr_group);
  PART(pgm_group_source_req, gsr_source);
  PART(pgm_group_source_req, gsr_addr);
  WHOLE(pgm_addrinfo_t);
  PART(pgm_addrinfo_t, ai_family);
  PART(pgm_addrinfo_t, ai_recv_addrs_len);
  PART(pgm_addrinfo_t, ai_recv_addrs);
  PART(pgm_addrinfo_t, ai_send_addrs_len);
  PART(pgm_addrinfo_t, ai_send_addrs);
  WHOLE(pgm_fecinfo_t);
  PART(pgm_fecinfo_t, block_size);
  PART(pgm_fecinfo_t, proactive_packets);
  PART(pgm_fecinfo_t, group_size);
  PART(pgm_fecinfo_t, ondemand_parity_enabled);
  PART(pgm_fecinfo_t, var_pktlen_enabled);
  WHOLE(pgm_pgmccinfo_t);
  WHOLE(pgm_iovec);
  PART(pgm_iovec, iov_base);
  PART(pgm_iovec, iov_len);
  WHOLE(pgm_msgv_t);
  PART(pgm_msgv_t, msgv_len);
  PART(pgm_msgv_t, msgv_skb);
  WHOLE(pgm_sk_buff_t);
  PART(pgm_sk_buff_t, link_);
  PART(pgm_sk_buff_t, sock);
  PART(pgm_sk_buff_t, tstamp);
  PART(pgm_sk_buff_t, tsi);
  PART(pgm_sk_buff_t, sequence);
  PART(pgm_sk_buff_t, __padding);
  PART(pgm_sk_buff_t, cb);
  PART(pgm_sk_buff_t, len);
  PART(pgm_sk_buff_t, pgm_header);
  PART(pgm_sk_buff_t, pgm_opt_fragment);
  PART(pgm_sk_buff_t, pgm_opt_pgmcc_data);
  PART(pgm_sk_buff_t, pgm_data);
  PART(pgm_sk_buff_t, head);
  PART(pgm_sk_buff_t, data);
  PART(pgm_sk_buff_t, tail);
  PART(pgm_sk_buff_t, end);
  PART(pgm_sk_buff_t, truesize);
  PART(pgm_sk_buff_t, users);
  WHOLE(pgm_error_t);
  PART(pgm_error_t, domain);
  PART(pgm_error_t, code);
  PART(pgm_error_t, message);
  WHOLE(group_req);
  WHOLE(group_source_req);
  WHOLE(pgm_header);
  WHOLE(pgm_data);
  return 0;
}
