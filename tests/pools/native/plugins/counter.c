// Two agents count the steps, each by its own stride; in plain C, against plugin.h alone.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "srl/plugin.h"

typedef struct Counter {
  int64_t limit;
  int32_t counts[2];
  float noise;
} Counter;

static int describe(const SrlEnvironmentType* type, const SrlOption* options, size_t num_options,
                    SrlTakeSpecs take, void* taker, SrlError* error) {
  (void)type;
  for (size_t i = 0; i < num_options; ++i) {
    if (strcmp(options[i].name, "limit") == 0 && options[i].kind == SRL_INTEGER) continue;
    snprintf(error->text, sizeof(error->text), "unknown option '%s'", options[i].name);
    return SRL_REFUSED;
  }
#ifdef NULL_AGENT
  static const char* const agents[] = {"slow", NULL};
#else
  static const char* const agents[] = {"slow", "fast"};
#endif
  static const char* const statistics[] = {"total"};
  static const double zero = 0, many = 1e6, one = 1;
  static const int32_t shape[] = {1}, action_shape[] = {2}, counts[] = {2, 3};
#ifdef NULL_FIELD
  static const char* const first = NULL;
#else
  static const char* const first = "count";
#endif
  const SrlField fields[] = {
      {first, {SRL_BOX, SRL_INT32, 1, shape, 1, &zero, &many, 0, NULL}},
      {"noise", {SRL_BOX, SRL_FLOAT32, 0, NULL, 1, &zero, &one, 0, NULL}},
  };
  const SrlSpecs specs = {
      sizeof(SrlSpecs),
      2,
      agents,
      2,
      fields,
      {SRL_MULTI_DISCRETE, SRL_INT32, 1, action_shape, 0, NULL, NULL, 2, counts},
      1,
      statistics,
      100};
  take(taker, &specs);
  return SRL_OK;
}

static int make(const SrlEnvironmentType* type, const SrlOption* options, size_t num_options,
                void** environment, SrlError* error) {
  (void)type, (void)error;
  Counter* counter = calloc(1, sizeof(Counter));
  counter->limit = num_options ? options[0].value.integer : 5;
  *environment = counter;
  return SRL_OK;
}

static int reset(void* environment, SrlRandom* random, SrlError* error) {
  (void)error;
  Counter* counter = environment;
  counter->counts[0] = counter->counts[1] = 0;
  counter->noise = (float)srl_random_uniform(random);
  return SRL_OK;
}

static int step(void* environment, const void* action, SrlRandom* random, SrlError* error) {
  (void)error;
  Counter* counter = environment;
  const int32_t* chosen = action;  // [2 agents, 2]
  for (int agent = 0; agent < 2; ++agent) {
    counter->counts[agent] += (agent + 1) * chosen[2 * agent] * chosen[2 * agent + 1];
  }
  counter->noise = (float)srl_random_uniform(random);
  return SRL_OK;
}

static int write(const void* environment, const SrlRows* rows, SrlError* error) {
  (void)error;
  const Counter* counter = environment;
  for (int agent = 0; agent < 2; ++agent) {
    ((int32_t*)rows->observation[0])[agent] = counter->counts[agent];
    ((float*)rows->observation[1])[agent] = counter->noise;
    rows->reward[agent] = (float)counter->counts[agent];
    rows->terminated[agent] = counter->counts[1] >= counter->limit;
    rows->truncated[agent] = false;
  }
  rows->statistics[0] = (float)(counter->counts[0] + counter->counts[1]);
  return SRL_OK;
}

static int save(void* environment, SrlTakeBytes take, void* taker, SrlError* error) {
  (void)error;
  const Counter* counter = environment;
  take(taker, counter->counts, sizeof(counter->counts));
  take(taker, &counter->noise, sizeof(counter->noise));
  return SRL_OK;
}

static int load(void* environment, const void* data, size_t size, SrlError* error) {
  Counter* counter = environment;
  if (size != sizeof(counter->counts) + sizeof(counter->noise)) {
    snprintf(error->text, sizeof(error->text), "%zu bytes are no saved counter", size);
    return SRL_FAILED;
  }
  memcpy(counter->counts, data, sizeof(counter->counts));
  memcpy(&counter->noise, (const char*)data + sizeof(counter->counts), sizeof(counter->noise));
  return SRL_OK;
}

static const SrlEnvironmentType counter_type = {
    .size = sizeof(SrlEnvironmentType),
    .name = "Counter-v0",
    .describe = describe,
    .make = make,
    .destroy = free,
    .reset = reset,
#ifndef WITHOUT_STEP
    .step = step,
#endif
    .write = write,
    .save = save,
    .load = load,
};

SRL_PLUGIN_ENTRY {
  (void)step;
  static const SrlEnvironmentType* const types[] = {&counter_type};
  static const SrlPlugin plugin = {
#ifdef WRONG_MAJOR
      SRL_PLUGIN_MAJOR + 1,
#else
      SRL_PLUGIN_MAJOR,
#endif
#ifdef NEWER_MINOR
      SRL_PLUGIN_MINOR + 1,
#else
      SRL_PLUGIN_MINOR,
#endif
#ifdef WITHOUT_TYPES
      0,
#else
      1,
#endif
      types,
  };
  return &plugin;
}
