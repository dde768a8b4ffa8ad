/* What these cores can do: one agent-round of federated LinUCB, written out in vectors by hand.
 *
 * An agent-round is the arithmetic of one agent in one round, without learning and without memory traffic to speak of,
 * so that a simulator can come near this rate but should not reach it.
 *
 * Mode A, fresh contexts. For each of K arms: draw x = (u, 1) / sqrt 2 with u uniform on the unit sphere of R^(d-1), by
 * Box and Muller (1958) from a counter; score it with <x, theta> + beta sqrt(x' V^-1 x); compute the mean <x, theta*>.
 * Result: the largest score and the largest mean. V^-1 is a packed triangle with off-diagonal entries doubled.
 *
 * Mode B, fixed contexts. For each arm: c = <x, v> with v = V^-1 x_t; its squared bonus loses g c^2 and its mean gains
 * h c, which is the step of Sherman and Morrison in O(d) per arm; score it. Result: the largest score.
 *
 *     reference MODE ROUNDS SEED
 *
 * prints JSON: nanoseconds per agent-round of one thread, and a "check". In mode A it is the average over agent-rounds
 * of the largest mean <x, theta*>, whose law is known: theta* = (e1, 1) / sqrt 2. In mode B it is the largest error of a
 * table after 8 steps of every agent, against float64.
 *
 * Compile with -DN_AGENTS=100 -DN_ARMS=100 -DDIM=10 -O3 -march=native. Vectors are those of GCC and clang: sixteen lanes
 * where the processor has AVX-512, eight elsewhere.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#ifdef __AVX__
#include <immintrin.h>
#endif

#ifdef __AVX512F__
#define LANES 16
#else
#define LANES 8
#endif
#define BLOCKS ((N_ARMS + LANES - 1) / LANES) /* vectors of arms */
#define PAIRS (DIM / 2)                       /* pairs of normals, for d - 1 of them */
#define PACKED (DIM * (DIM + 1) / 2)
#define INLINE static inline __attribute__((always_inline))

typedef float floats __attribute__((vector_size(4 * LANES)));
typedef uint32_t words __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));

/* What the vector extensions have no operator for. */
#if defined(__AVX512F__)
INLINE floats root(floats x) { return (floats)_mm512_sqrt_ps((__m512)x); }
INLINE floats larger(floats x, floats y) { return (floats)_mm512_max_ps((__m512)x, (__m512)y); }
#elif defined(__AVX__)
INLINE floats root(floats x) { return (floats)_mm256_sqrt_ps((__m256)x); }
INLINE floats larger(floats x, floats y) { return (floats)_mm256_max_ps((__m256)x, (__m256)y); }
#else
INLINE floats root(floats x) {
  for (int i = 0; i < LANES; i++) x[i] = sqrtf(x[i]);
  return x;
}
INLINE floats larger(floats x, floats y) {
  for (int i = 0; i < LANES; i++) x[i] = x[i] > y[i] ? x[i] : y[i];
  return x;
}
#endif
INLINE floats to_floats(ints x) { return __builtin_convertvector(x, floats); }
INLINE floats all(float x) { return (floats){0} + x; }
INLINE words lanes(uint32_t first) {
  words found;
  for (int i = 0; i < LANES; i++) found[i] = first + i;
  return found;
}
INLINE float largest(floats x) {
  float found = x[0];
  for (int i = 1; i < LANES; i++) found = x[i] > found ? x[i] : found;
  return found;
}

/* 32 random bits from a counter: two rounds of multiply and xor-shift, with constants found by C. Wellons. */
INLINE words mix(words x) {
  x ^= x >> 16;
  x *= 0x21f0aaadu;
  x ^= x >> 15;
  x *= 0x735a2d97u;
  return x ^ x >> 15;
}

/* -2 log of a uniform number in (0, 1): the exponent, and a polynomial in the mantissa on [sqrt 1/2, sqrt 2) (Cephes). */
INLINE floats minus_two_log(words bits) {
  floats u = to_floats((ints)(bits >> 8)) * 0x1p-24f + 0x1p-25f;
  ints exponent = ((ints)u - 0x3f3504f3) >> 23;
  floats m = (floats)((ints)u - (exponent << 23)) - 1, z = m * m;
  floats p = 7.0376836292e-2f * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  return -2 * (p * m * z - 0.5f * z + m + 0.693147181f * to_floats(exponent));
}

/* Cosine and sine of a uniform angle: the angle within a quarter from 23 bits, the quarter from two others. */
INLINE void direction(words bits, floats *cosine, floats *sine) {
  floats a = (to_floats((ints)(bits << 2 >> 9)) * 0x1p-23f - 0.5f + 0x1p-24f) * 1.57079633f, q = a * a;
  floats s = a * (1 + q * (-1.6666654611e-1f + q * (8.3321608736e-3f - 1.9515295891e-4f * q)));
  floats c = 1 - 0.5f * q + q * q * (4.166664568e-2f + q * (-1.388731625e-3f + 2.443315711e-5f * q));
  ints swap = (ints)(bits << 1) >> 31;
  words sign = bits & 0x80000000u;
  *sine = (floats)((words)(ints)(((ints)s & swap) | ((ints)c & ~swap)) ^ sign);
  *cosine = (floats)((words)(ints)(((ints)c & swap) | ((ints)s & ~swap)) ^ sign);
}

/* The feature vectors (u, 1) / sqrt 2 of a vector of arms; every word of a round has a counter of its own. */
INLINE void draw(words arm, uint32_t key, floats *x) {
  words counter = arm * (2 * PAIRS * 0x9e3779b9u) + key;
  floats squares = {0};
#pragma GCC unroll 64
  for (int j = 0; j < PAIRS; j++) {
    floats c, s, r = root(minus_two_log(mix(counter + 2 * j * 0x9e3779b9u)));
    direction(mix(counter + (2 * j + 1) * 0x9e3779b9u), &c, &s);
    x[2 * j] = r * c;
    squares += x[2 * j] * x[2 * j];
    if (2 * j + 1 < DIM - 1) {
      x[2 * j + 1] = r * s;
      squares += x[2 * j + 1] * x[2 * j + 1];
    }
  }
  floats scale = 1 / root(2 * squares);
#pragma GCC unroll 64
  for (int i = 0; i < DIM - 1; i++) x[i] *= scale;
  x[DIM - 1] = all(0.707106781f);
}

typedef struct {
  float inverse[PACKED], theta[DIM], best[DIM], beta; /* V^-1, the estimate, theta*, the width */
} agent_t;

/* One agent-round of mode A; returns the largest score in [0], the largest mean in [1]. */
static __attribute__((noinline)) void fresh(const agent_t *restrict agent, uint32_t key, float found[2]) {
  floats score = all(-INFINITY), mean = score;
  for (int block = 0; block < BLOCKS; block++) {
    floats x[DIM + 1], estimate = {0}, width = {0}, truth = {0};
    draw(lanes(LANES * block), key, x);
#pragma GCC unroll 64
    for (int i = 0; i < DIM; i++) {
      floats row = {0};
#pragma GCC unroll 64
      for (int j = 0; j <= i; j++) row += agent->inverse[i * (i + 1) / 2 + j] * x[j];
      width += row * x[i];
      estimate += agent->theta[i] * x[i];
      truth += agent->best[i] * x[i];
    }
    floats index = estimate + agent->beta * root(width);
    if (block == BLOCKS - 1) { /* lanes beyond the last arm do not count */
      ints real = lanes(LANES * block) < N_ARMS;
      index = (floats)(((ints)index & real) | ((ints)all(-INFINITY) & ~real));
      truth = (floats)(((ints)truth & real) | ((ints)all(-INFINITY) & ~real));
    }
    score = larger(score, index);
    mean = larger(mean, truth);
  }
  found[0] = largest(score);
  found[1] = largest(mean);
}

typedef struct {
  floats x[BLOCKS][DIM], squared[BLOCKS], mean[BLOCKS]; /* contexts, squared bonuses, estimated means */
} table_t;

/* One agent-round of mode B; returns the largest score. */
static __attribute__((noinline)) float fixed(table_t *restrict table, const float *v, float g, float h, float beta) {
  floats score = all(-INFINITY);
  for (int block = 0; block < BLOCKS; block++) {
    floats c = {0};
#pragma GCC unroll 64
    for (int i = 0; i < DIM; i++) c += v[i] * table->x[block][i];
    table->squared[block] -= g * c * c;
    table->mean[block] += h * c;
    score = larger(score, table->mean[block] + beta * root(table->squared[block]));
  }
  return largest(score);
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

/* The results are used, in `sink`, so that the compiler must compute them. */
static void report(char mode, long rounds, double started, double check, double sink) {
  double taken = seconds() - started;
  if (isnan(sink)) fputs("some score is not a number\n", stderr);
  printf("{\"mode\": \"%c\", \"lanes\": %d, \"seconds\": %.6f, \"ns\": %.3f, \"check\": %.9g}\n", mode, LANES, taken,
         1e9 * taken / rounds, check);
}

static int play_fresh(long rounds, uint32_t seed) {
  static agent_t agents[N_AGENTS];
  double sink = 0, sum = 0, started;
  for (int a = 0; a < N_AGENTS; a++) {
    for (int i = 0, o = 0; i < DIM; o += ++i) agents[a].inverse[o + i] = 1; /* V = I */
    agents[a].best[0] = agents[a].best[DIM - 1] = 0.707106781f;             /* theta* is (e1, 1) / sqrt 2 */
    agents[a].theta[0] = agents[a].beta = 0.5f;
  }
  started = seconds();
  for (long t = 0; t < rounds; t++) {
    float found[2];
    agent_t *agent = &agents[t % N_AGENTS];
    fresh(agent, mix(lanes((uint32_t)t) ^ mix(lanes(seed)))[0], found);
    agent->inverse[0] = 1 + 1e-9f * found[0]; /* the next round must wait, as learning would make it */
    sink += found[0];
    sum += found[1];
  }
  report('A', rounds, started, sum / rounds, sink);
  return 0;
}

/* By how much the tables are off after some steps from zero, computed in float64. */
static double error_of(const table_t *tables, const float *v, double g, double h, int steps) {
  double off = 0;
  for (int a = 0; a < N_AGENTS; a++)
    for (int b = 0; b < BLOCKS; b++)
      for (int i = 0; i < LANES; i++) {
        double c = 0;
        for (int j = 0; j < DIM; j++) c += (double)v[j] * tables[a].x[b][j][i];
        off = fmax(off, fabs(1 - steps * g * c * c - tables[a].squared[b][i]));
        off = fmax(off, fabs(steps * h * c - tables[a].mean[b][i]));
      }
  return off;
}

static int play_fixed(long rounds, uint32_t seed) {
  float v[DIM];
  double sink = 0, started, check;
  table_t *tables = aligned_alloc(sizeof(floats), N_AGENTS * sizeof(table_t));
  if (!tables) return 1;
  for (int i = 0; i < DIM; i++) v[i] = 0.1f * (i + 1);
  for (int a = 0; a < N_AGENTS; a++)
    for (int b = 0; b < BLOCKS; b++) {
      floats x[DIM + 1];
      draw(lanes((a * BLOCKS + b) * LANES), seed, x);
      for (int i = 0; i < DIM; i++) tables[a].x[b][i] = x[i];
      tables[a].squared[b] = all(1), tables[a].mean[b] = all(0);
    }
  for (int t = 0; t < 8 * N_AGENTS; t++) fixed(&tables[t % N_AGENTS], v, 1e-3f, 1e-2f, 0.5f);
  check = error_of(tables, v, 1e-3f, 1e-2f, 8);
  started = seconds();
  for (long t = 0; t < rounds; t++) sink += fixed(&tables[t % N_AGENTS], v, 1e-9f, 1e-9f, 0.5f);
  report('B', rounds, started, check, sink);
  free(tables);
  return 0;
}

int main(int argc, char **argv) {
  if (argc != 4 || (*argv[1] != 'A' && *argv[1] != 'B')) {
    fputs("usage: reference A|B ROUNDS SEED\n", stderr);
    return 2;
  }
  return (*argv[1] == 'A' ? play_fresh : play_fixed)(atol(argv[2]), (uint32_t)atol(argv[3]));
}
