// The boundary between srl and a library of environments compiled elsewhere, in plain C.
//
// Authors in C++ need not read this: they derive from srl::Environment (srl/environment.h) and say
// SRL_EXPORT_PLUGIN (srl/export_plugin.h). In another language, give the library one exported
// function, `srl_plugin`, that returns the tables below.
//
// What holds for all functions here:
// - A status is SRL_OK, SRL_REFUSED (the caller's mistake, such as an unknown option) or SRL_FAILED
//   (the environment's own failure), the latter two with a text in `error`.
// - What has no fixed size (specs, saved bytes, numbers) is handed to a function `take`, which
//   copies it at once; `taker` is passed on to it.
// - Nothing may throw or jump across. The functions are called from several threads at a time, but
//   those of one environment from one thread at a time.
// - Texts are UTF-8 and end in 0. Pointers that are passed hold until the function returns.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// A library is loaded if its major version is srl's and its minor version is not above srl's. A
// minor version only adds members to the ends of structs that begin with their size.
#define SRL_PLUGIN_MAJOR 1
#define SRL_PLUGIN_MINOR 0

enum { SRL_OK = 0, SRL_REFUSED = 1, SRL_FAILED = 2 };                          // statuses
enum { SRL_BOOL, SRL_UINT8, SRL_INT32, SRL_INT64, SRL_FLOAT32, SRL_FLOAT64 };  // dtypes
enum { SRL_BOX = 0, SRL_DISCRETE = 1, SRL_MULTI_DISCRETE = 2 };                // spaces
enum { SRL_FLAG = 0, SRL_INTEGER = 1, SRL_NUMBER = 2, SRL_TEXT = 3 };          // options

typedef struct SrlError {
  char text[1024];
} SrlError;

// An option as given by the user. An integer may stand where a number is expected.
typedef struct SrlOption {
  const char* name;
  int32_t kind;  // which member of `value` it is
  union {
    bool flag;
    int64_t integer;
    double number;
    const char* text;
  } value;
} SrlOption;

// A Gymnasium space that is one array. Discrete spaces are SRL_INT32; Discrete has rank 0, one
// count and no bounds; MultiDiscrete has a count for each element. A Box has no counts, and one
// bound for all elements or one for each.
typedef struct SrlSpace {
  int32_t kind;
  int32_t dtype;
  size_t rank;
  const int32_t* shape;  // [rank]
  size_t num_bounds;
  const double* low;   // [num_bounds]
  const double* high;  // [num_bounds]
  size_t num_counts;
  const int32_t* counts;  // [num_counts]
} SrlSpace;

typedef struct SrlField {
  const char* name;
  SrlSpace space;
} SrlField;

// What srl tells its users about an environment. The agents share the two spaces.
typedef struct SrlSpecs {
  size_t size;  // sizeof(SrlSpecs)
  size_t num_agents;
  const char* const* agents;
  size_t num_fields;
  const SrlField* fields;  // the arrays of an observation; a single one may have the name ""
  SrlSpace action;         // a Box of SRL_FLOAT32, or discrete
  size_t num_statistics;
  const char* const* statistics;
  int32_t max_episode_steps;  // episodes are truncated there; 0: no limit
} SrlSpecs;

typedef void (*SrlTakeSpecs)(void* taker, const SrlSpecs* specs);
typedef void (*SrlTakeBytes)(void* taker, const void* data, size_t size);
typedef void (*SrlTakeNumbers)(void* taker, const char* name, const double* values, size_t count);

// Where an environment writes what its A agents see, one after the other. Not zeroed beforehand.
typedef struct SrlRows {
  void* const* observation;  // for each field, the first of A consecutive rows
  float* reward;             // [A]
  bool* terminated;          // [A]
  bool* truncated;           // [A]
  float* statistics;         // [num_statistics], this episode's so far; final at its end
} SrlRows;

// The state of a stream of random numbers, of which all chance must come.
typedef struct SrlRandom {
  uint64_t words[4];
} SrlRandom;

// 64 random bits by xoshiro256** (Blackman and Vigna, 2018).
static inline uint64_t srl_random_bits(SrlRandom* random) {
  uint64_t* const s = random->words;
  const uint64_t scaled = s[1] * 5;
  const uint64_t result = ((scaled << 7) | (scaled >> 57)) * 9;
  const uint64_t shifted = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= shifted;
  s[3] = (s[3] << 45) | (s[3] >> 19);
  return result;
}

// Uniform in [0, 1), 53 bits.
static inline double srl_random_uniform(SrlRandom* random) {
  return (double)(srl_random_bits(random) >> 11) * (1.0 / 9007199254740992.0);
}

// A kind of environment. Equal seeds and equal actions must give equal trajectories.
typedef struct SrlEnvironmentType {
  size_t size;       // sizeof(SrlEnvironmentType)
  const char* name;  // such as "Walk-v0"

  // Gives the specs under these options; called before `make` with the same.
  int (*describe)(const struct SrlEnvironmentType* type, const SrlOption* options,
                  size_t num_options, SrlTakeSpecs take, void* taker, SrlError* error);
  int (*make)(const struct SrlEnvironmentType* type, const SrlOption* options, size_t num_options,
              void** environment, SrlError* error);
  void (*destroy)(void* environment);

  // Starts an episode.
  int (*reset)(void* environment, SrlRandom* random, SrlError* error);
  // Advances one step, never after an episode's end. `action` holds the agents' actions one after
  // the other, already checked against the action space.
  int (*step)(void* environment, const void* action, SrlRandom* random, SrlError* error);
  // Writes the present observation, and the reward and flags of the last step (0 and false after a
  // reset); called once after each reset and step.
  int (*write)(const void* environment, const SrlRows* rows, SrlError* error);
  // Gives all that the future depends on besides `random`, in one or more pieces; `load` gets them
  // as one.
  int (*save)(void* environment, SrlTakeBytes take, void* taker, SrlError* error);
  int (*load)(void* environment, const void* data, size_t size, SrlError* error);

  // May be null. Numbers for drawing and tests, such as positions; setting them; a MuJoCo model as
  // written by mj_saveModel.
  int (*inspect)(const void* environment, SrlTakeNumbers take, void* taker, SrlError* error);
  int (*inject)(void* environment, const char* name, const double* values, size_t count,
                SrlError* error);
  int (*model)(const void* environment, SrlTakeBytes take, void* taker, SrlError* error);
} SrlEnvironmentType;

typedef struct SrlPlugin {
  uint32_t major;  // SRL_PLUGIN_MAJOR
  uint32_t minor;  // SRL_PLUGIN_MINOR
  size_t num_types;
  const SrlEnvironmentType* const* types;  // these must live as long as the library
} SrlPlugin;

// The one function that a library exports.
#define SRL_PLUGIN_ENTRY __attribute__((visibility("default"))) const SrlPlugin* srl_plugin(void)
SRL_PLUGIN_ENTRY;

#ifdef __cplusplus
}
#endif
