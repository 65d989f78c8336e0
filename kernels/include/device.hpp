// FPNA_POINT: functions compiled for the CPU and, at run time, for the GPU (nvcc, NVRTC or hipRTC).
#pragma once

#if defined(__CUDACC__) || defined(__HIPCC__) || defined(__HIPCC_RTC__)
#define FPNA_POINT __host__ __device__ inline
#else
#define FPNA_POINT inline __attribute__((always_inline))
#endif
